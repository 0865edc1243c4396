"""Data for the compiled evaluators of columns: the plan of a loop over rows as the lines of its statements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.formulas import Formulas, formulas
from shardmath.compiler.expressions.graph import Graph, Node, ordered
from shardmath.compiler.expressions.source import parse
from shardmath.compiler.flat.plan import Flat, Plan, planned, thinned
from shardmath.compiler.printers.columns import FlatPrinter
from shardmath.compiler.printers.nodes import PYTHON, Dialect

from ..parameters import PARAMETERS, Kind
from ..printers.python import PythonPrinter, identifier
from ..terms import term_symbol
from ..verdict import ESTIMATE as ESTIMATE_SYMBOL
from ..verdict import LIMITS, VERDICTS

#: The terms that a sweep needs for every layout, and the one that the verdict is about.
SWEEP_OUTPUTS = ("first.total", "last.total", "peak")
ESTIMATE = "peak"


def kernel(
    title: str, evaluator: str, outputs: Sequence[str] = SWEEP_OUTPUTS, columns: Collection[str] | None = None,
    dialect: Dialect = PYTHON, *, simplified: bool = False,
) -> dict[str, Any]:
    """Data of ``kernel.py.jinja``: the rules, the verdict and the terms ``outputs`` for columns of layouts.

    ``evaluator`` is the source of the plain evaluator. ``columns`` names the parameters that differ from row to row, by
    default all that describe a layout; the others are the same for all rows. A ``simplified`` estimate is without what
    is provably never its largest part: the proofs take seconds, and save a tenth of the loop. Raises ValueError if a
    least common multiple is not with a power of two: the compiled one needs it.
    """
    graph = Graph()
    known = formulas(evaluator, graph)
    estimate = known.named(ESTIMATE)
    flat = Flat(graph, tuple(rule for _, rule in known.rules), _verdicts(known, estimate),
                tuple(known.named(name) for name in outputs))
    _check_multiples(flat.roots)
    needed = {node.value for node in ordered(flat.roots) if node.op == ops.NAME}
    inputs = [parameter for parameter in PARAMETERS if parameter.name in needed]
    if columns is None:
        columns = {parameter.name for parameter in inputs if parameter.kind is Kind.LAYOUT}
    limits = {parameter.name: (parameter.minimum, parameter.maximum) for parameter in PARAMETERS}
    switches = {parameter.name for parameter in PARAMETERS if parameter.is_switch}
    terms = {node: name.replace(".", "_") for name, node in reversed(list(known.terms.items()))}
    if simplified:
        flat = thinned(flat, estimate, limits)
    plan = planned(flat, columns, switches, terms)
    return {
        "title": title,
        "scalars": [parameter.name for parameter in inputs if parameter.name not in columns],
        "columns": [parameter.name for parameter in inputs if parameter.name in columns],
        "outputs": list(outputs),
        **lines(plan, dialect),
    }


def lines(plan: Plan, dialect: Dialect) -> dict[str, Any]:
    """Return the statements of a plan in a language, for a template."""
    printer = FlatPrinter(dialect, plan.names)

    def steps(nodes: Sequence[Node]) -> list[dict[str, Any]]:
        return [{"name": plan.names[node], "source": printer.doprint(node), "is_condition": node.is_condition}
                for node in nodes]

    def shown(nodes: Sequence[Node]) -> list[str]:
        return [plan.names.get(node) or printer.doprint(node) for node in nodes]

    return {
        "before": steps(plan.before), "steps": steps(plan.steps), "rules": shown(plan.flat.rules),
        "verdicts": shown(plan.flat.verdicts), "sizes": shown(plan.flat.outputs),
    }


def _verdicts(known: Formulas, estimate: Node) -> tuple[Node, ...]:
    """Return the conditions of all verdicts but the last, which is for all that is left."""
    names: Mapping[str, Node] = {
        ESTIMATE_SYMBOL.name: estimate, **{identifier(term_symbol(name)): known.named(name) for name in LIMITS}}
    return tuple(
        parse(PythonPrinter().doprint(item.condition), known.graph, names.__getitem__) for item in VERDICTS[:-1])


def _check_multiples(roots: Sequence[Node]) -> None:
    for node in ordered(roots):
        if node.op == ops.LCM:
            other = node.args[1]
            if not (other.op == ops.NUMBER and str(other.value).isdecimal() and int(str(other.value)).bit_count() == 1):
                raise ValueError(f"{node}: the second argument must be a power of two")
