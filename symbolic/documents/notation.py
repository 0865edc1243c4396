"""Data for the notation of the appendix: parameters, sharding rules, pipeline, states, recompute, legality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Expr, Integer

from ..accounts import build
from ..choices import AXES
from ..dimension import Dimension
from ..implementations import Implementation
from ..ledger import Lifetime, Place
from ..parallel.data import END_ALIGNMENT, START_ALIGNMENT, aligned
from ..parallel.derived import definitions
from ..parallel.legality import rules_for
from ..parallel.pipeline import instances
from ..parallel.rules import ParallelRule, Rule, Split, local_size
from ..parameters import BY_LETTER, Kind, Parameter, symbol
from ..printers.latex import LatexPrinter
from ..recompute import MODES
from ..terms import operations, term_symbol
from .pipelines import pipelines
from .scope import Scope
from .states import kept_states
from .tensors import LONGEST
from .tex import broken, cell, cite, code, escape, math, or_dash

_KINDS = {
    Kind.MODEL: "Model", Kind.TRAINING: "Training", Kind.LAYOUT: "Layout", Kind.CLUSTER: "Cluster",
    Kind.MACHINE: "Machine", Kind.DERIVED: "Derived",
}
#: Letters that fit beside a parameter.
_DEFINITION = 24
#: Letters that fit into a column of sizes.
_SIZE = 21
_LIFETIMES = {
    Lifetime.PERSISTENT: "from the first step to the last",
    Lifetime.IN_FLIGHT: "once for every micro-batch in flight on the rank",
    Lifetime.ONCE: "once, however many micro-batches are in flight",
    Lifetime.SITE: "only at the named moments of a step",
}


def notation(scope: Scope) -> dict[str, Any]:
    """Prepare the table of parameters, in groups."""
    defined = definitions(scope.main.choices, scope.main.framework)
    groups = [
        {"title": title, "rows": [_parameter(item, defined) for item in scope.parameters if item.kind is kind]}
        for kind, title in _KINDS.items()
    ]
    return {"parameters": [group for group in groups if group["rows"]]}


def sharding(scope: Scope) -> dict[str, Any]:
    """Prepare what every parallel dimension and recompute do, and which configurations are legal."""
    switches = {item.switch for item in scope.regions}
    return {
        "parallel_rules": [
            {"title": rule.title, "degree": math(rule.degree), "meaning": escape(rule.meaning),
             "source": cite(rule.source)}
            for rule in scope.parallel_rules
        ],
        "splits": [escape(f"{split.name.lower().replace('_', ' ')}: {split.value}") for split in Split],
        "dimensions": [_dimension(item, scope.parallel_rules) for item in scope.dimensions],
        "places": [
            {"place": place.value, "instances": math(instances(place, scope.main.choices)),
             "components": [{"name": item.name, "code": code(item.name)} for item in components]}
            for place in Place
            if (components := [item for item in scope.components if item.place is place])
        ],
        "lifetimes": [{"name": item.value, "meaning": meaning} for item, meaning in _LIFETIMES.items()],
        **pipelines(scope),
        **kept_states(scope),
        **_buffer(scope.main),
        "regions": [
            {"name": code(item.name), "switch": math(symbol(item.switch)),
             "modules": ", ".join(map(code, item.modules)) or "the whole layer",
             "meaning": escape(item.meaning), "source": cite(item.source)}
            for item in scope.regions
        ],
        "modes": [
            {"name": code(name), "switches": ", ".join(math(symbol(letter)) for letter in letters) or "none"}
            for name, letters in MODES.items() if switches >= {*letters}
        ],
        "rule_groups": _rules(scope),
        "axes": [
            {"name": code(axis.name), "meaning": escape(axis.meaning),
             "options": [{"name": code(option), "meaning": escape(axis.options[option])}
                         for option in scope.options(axis.name)]}
            for axis in AXES
        ],
        "implementations": [kernels(item) for item in scope.implementations],
    }


def kernels(item: Implementation) -> dict[str, str]:
    """Prepare the name, the version and the choices of an implementation."""
    return {
        "name": code(item.framework), "title": escape(item.title), "version": escape(item.version),
        "choices": ", ".join(rf"{code(axis)} {code(option)}" for axis, option in item.choices.items()),
    }


def _parameter(item: Parameter, defined: Mapping[str, Expr]) -> dict[str, str]:
    definition = defined.get(item.letter)
    meaning = escape(item.meaning)
    if definition is not None:
        meaning += rf":\par {cell(definition, _DEFINITION)}"
    return {
        "letter": math(item.symbol), "name": code(item.name), "unit": escape(item.unit),
        "smallest": str(item.minimum), "meaning": meaning,
    }


def _size(size: Expr) -> str:
    """Set the size of a dimension in one piece, or in many where it is longer than its column."""
    return cell(size, _SIZE) if operations(size) > LONGEST else math(size)


def _dimension(item: Dimension, rules: tuple[ParallelRule, ...]) -> dict[str, Any]:
    degrees = ", ".join(math(rule.degree) for rule in rules if item in rule.splits)
    conditions = [rule.condition(item) for rule in rules if item in rule.splits]
    texts = [math(condition) for condition in conditions if condition is not None]
    if len(texts) < len(conditions):
        texts.append("padded")
    return {
        "name": code(item.name), "size": _size(item.size), "degrees": or_dash(degrees),
        "local": _size(local_size(item, rules)), "condition": or_dash(", ".join(texts)),
        "meaning": escape(item.meaning),
    }


def _buffer(main: Implementation) -> dict[str, str]:
    """Prepare the layout of the distributed optimizer's buffer; it is empty for one that has no such buffer."""
    terms = build(main)
    printer = LatexPrinter(terms.terms.values())
    buffer = terms["stage.buffer_elements"]
    shared_by = definitions(main.choices, main.framework)["shards"]
    return {
        "shards": f"${printer.doprint(BY_LETTER['shards'].symbol)} = {printer.doprint(shared_by)}$",
        "start_alignment": str(START_ALIGNMENT), "end_alignment": str(END_ALIGNMENT),
        "aligned": math(aligned((term_symbol("x"),), main.choices, Integer(1))),
        "buffer": broken(f"{printer.doprint(buffer.symbol)} =", printer.pieces(buffer.expression))
        if main.choices["data_parallel"] == "ddp" else "",
    }


def _rules(scope: Scope) -> list[dict[str, Any]]:
    """Prepare the rules that all implementations share, then what each cannot do."""
    of_each = {item.framework: rules_for(item) for item in scope.implementations}
    shared = [rule for rule in of_each[scope.main.framework] if all(rule in rules for rules in of_each.values())]
    title = "All implementations" if len(of_each) > 1 else code(scope.main.framework)
    groups = [{"title": title, "rows": [_rule(rule) for rule in shared]}]
    for name, rules in of_each.items():
        own = [_rule(rule) for rule in rules if rule not in shared]
        if own:
            groups.append({"title": f"Only {code(name)}", "rows": own})
    return groups


def _rule(item: Rule) -> dict[str, str]:
    return {
        "name": code(item.name), "condition": math(item.condition), "field": code(BY_LETTER[item.field].name),
        "text": escape(item.text),
    }
