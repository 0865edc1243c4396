"""Data for the notation of the appendix: parameters, sharding rules, pipeline, states, recompute, legality."""

from __future__ import annotations

from typing import Any

from sympy import Integer

from ..accounts import build
from ..choices import AXES
from ..components import all_components
from ..dimension import Dimension
from ..dimensions import DIMENSIONS
from ..implementations import IMPLEMENTATIONS, MEGATRON
from ..ledger import Lifetime, Place
from ..parallel.data import END_ALIGNMENT, START_ALIGNMENT, aligned
from ..parallel.derived import definitions
from ..parallel.dimensions import SHAPE_RULES
from ..parallel.legality import rules_for
from ..parallel.pipeline import instances
from ..parallel.rules import Rule, Split, local_size
from ..parameters import BY_LETTER, PARAMETERS, Kind, Parameter, symbol
from ..printers.latex import LatexPrinter
from ..recompute import MODES, REGIONS
from ..terms import term_symbol
from .pipelines import pipelines
from .states import kept_states
from .tex import broken, cite, code, escape, math, or_dash

_KINDS = {
    Kind.MODEL: "Model", Kind.TRAINING: "Training", Kind.LAYOUT: "Layout", Kind.CLUSTER: "Cluster",
    Kind.MACHINE: "Machine", Kind.DERIVED: "Derived",
}
_LIFETIMES = {
    Lifetime.PERSISTENT: "from the first step to the last",
    Lifetime.IN_FLIGHT: "once for every micro-batch in flight on the rank",
    Lifetime.ONCE: "once, however many micro-batches are in flight",
    Lifetime.SITE: "only at the named moments of a step",
}


def notation() -> dict[str, Any]:
    """Prepare the table of parameters, in groups."""
    groups = [
        {"title": title, "rows": [_parameter(item) for item in PARAMETERS if item.kind is kind]}
        for kind, title in _KINDS.items()
    ]
    return {"parameters": groups}


def sharding() -> dict[str, Any]:
    """Prepare what every parallel dimension and recompute do, and which configurations are legal."""
    return {
        "parallel_rules": [
            {"title": rule.title, "degree": math(rule.degree), "meaning": escape(rule.meaning),
             "source": cite(rule.source)}
            for rule in SHAPE_RULES
        ],
        "splits": [escape(f"{split.name.lower().replace('_', ' ')}: {split.value}") for split in Split],
        "dimensions": [_dimension(item) for item in DIMENSIONS],
        "places": [
            {"place": place.value, "instances": math(instances(place, MEGATRON.choices)),
             "components": ", ".join(code(item.name) for item in all_components() if item.place is place)}
            for place in Place
        ],
        "lifetimes": [{"name": item.value, "meaning": meaning} for item, meaning in _LIFETIMES.items()],
        **pipelines(),
        **kept_states(),
        **_buffer(),
        "regions": [
            {"name": code(item.name), "switch": math(symbol(item.switch)),
             "modules": ", ".join(map(code, item.modules)) or "the whole layer",
             "meaning": escape(item.meaning), "source": cite(item.source)}
            for item in REGIONS
        ],
        "modes": [
            {"name": code(name), "switches": ", ".join(math(symbol(letter)) for letter in letters) or "none"}
            for name, letters in MODES.items()
        ],
        "rule_groups": _rules(),
        "axes": [
            {"name": code(axis.name), "meaning": escape(axis.meaning),
             "options": [{"name": code(option), "meaning": escape(text)} for option, text in axis.options.items()]}
            for axis in AXES
        ],
        "implementations": [
            {"name": code(item.name), "title": escape(item.title), "version": escape(item.version),
             "choices": ", ".join(rf"{code(axis)} {code(option)}" for axis, option in item.choices.items())}
            for item in IMPLEMENTATIONS.values()
        ],
    }


def _parameter(item: Parameter) -> dict[str, str]:
    definition = definitions(MEGATRON.choices, MEGATRON.framework).get(item.letter)
    meaning = escape(item.meaning)
    if definition is not None:
        meaning += f": {math(definition)}"
    return {
        "letter": math(item.symbol), "name": code(item.name), "unit": escape(item.unit),
        "smallest": str(item.minimum), "meaning": meaning,
    }


def _dimension(item: Dimension) -> dict[str, Any]:
    degrees = ", ".join(math(rule.degree) for rule in SHAPE_RULES if item in rule.splits)
    conditions = [rule.condition(item) for rule in SHAPE_RULES if item in rule.splits]
    texts = [math(condition) for condition in conditions if condition is not None]
    if len(texts) < len(conditions):
        texts.append("padded")
    return {
        "name": code(item.name), "size": math(item.size), "degrees": or_dash(degrees),
        "local": math(local_size(item, SHAPE_RULES)), "condition": or_dash(", ".join(texts)),
        "meaning": escape(item.meaning),
    }


def _buffer() -> dict[str, str]:
    """Prepare the layout of the distributed optimizer's buffer."""
    terms = build(MEGATRON)
    printer = LatexPrinter(terms.terms.values())
    buffer = terms["stage.buffer_elements"]
    shared_by = definitions(MEGATRON.choices, MEGATRON.framework)["shards"]
    return {
        "shards": f"${printer.doprint(BY_LETTER['shards'].symbol)} = {printer.doprint(shared_by)}$",
        "start_alignment": str(START_ALIGNMENT), "end_alignment": str(END_ALIGNMENT),
        "aligned": math(aligned((term_symbol("x"),), MEGATRON.choices, Integer(1))),
        "buffer": broken(f"{printer.doprint(buffer.symbol)} =", printer.pieces(buffer.expression)),
    }


def _rules() -> list[dict[str, Any]]:
    """Prepare the rules that all implementations share, then what each cannot do."""
    of_each = {name: rules_for(item) for name, item in IMPLEMENTATIONS.items()}
    shared = [rule for rule in of_each[MEGATRON.name] if all(rule in rules for rules in of_each.values())]
    groups = [{"title": "All implementations", "rows": [_rule(rule) for rule in shared]}]
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
