"""Data for compiled inverses: an evaluator of columns that also gives the polynomial of one symbol for every row.

Where a row stands, the estimate is a polynomial of the symbol: its coefficients are outputs beside the estimate itself,
and so are numbers that must divide the symbol. The solver of the polynomial reads them. The rules of the evaluator are
those that do not speak of the symbol; whether the others are met is an output too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.dominated import without_dominated
from shardmath.compiler.expressions.formulas import formulas
from shardmath.compiler.expressions.graph import Graph, Node, ordered
from shardmath.compiler.flat.plan import Flat, planned
from shardmath.compiler.inverses.coefficients import Polynomials
from shardmath.compiler.printers.nodes import PYTHON

from ..parameters import PARAMETERS
from ..verdict import MOST
from .inverted import NAMES
from .kernel import ESTIMATE, lines

#: Names of outputs: the limit of the estimate, 1 where the rules that speak of the symbol are met, what must divide it.
LIMIT, LEGAL, STEP = "limit", "legal", "step{}"


def inverse_kernel(
    title: str, evaluator: str, symbol: str, along: Sequence[str], columns: Collection[str],
) -> dict[str, Any]:
    """Data of ``kernel.py.jinja``: the estimate and its polynomial in the parameter ``symbol`` for columns of layouts.

    ``evaluator`` is the source of the plain evaluator; ``along`` names parameters that grow with the symbol.
    ``columns`` are parameters that differ from row to row; the symbol is among them in any case. Raises
    NoClosedFormError where the estimate is no polynomial of the symbol in some layout.
    """
    graph = Graph()
    known = formulas(evaluator, graph)
    rules = tuple(rule for _, rule in known.rules)
    limits = {parameter.name: (parameter.minimum, parameter.maximum) for parameter in PARAMETERS}
    estimate = without_dominated(graph, known.named(ESTIMATE), limits, rules)
    name = graph.name(symbol)
    symbols = {name: graph.number(1)}
    symbols |= {graph.name(other): graph.binary(ops.DIV, graph.name(other), name) for other in along}
    counts = Polynomials(graph, symbols, lambda node: node).of(estimate)
    changing = [rule for rule in rules if not symbols.keys().isdisjoint(ordered([rule]))]
    outputs = {
        ESTIMATE: estimate, LIMIT: known.named(MOST), **{NAMES[power]: node for power, node in sorted(counts.items())},
        LEGAL: graph.select(graph.logic(ops.AND, changing), graph.number(1), graph.number(0)),
        **{STEP.format(number): node for number, node in enumerate(_steps(graph, changing, name))},
    }
    flat = Flat(graph, tuple(rule for rule in rules if rule not in changing), (), tuple(outputs.values()))
    needed = {node.value for node in ordered(flat.roots) if node.op == ops.NAME}
    inputs = [parameter for parameter in PARAMETERS if parameter.name in needed]
    columns = {*columns, symbol, *along}
    switches = {parameter.name for parameter in PARAMETERS if parameter.is_switch}
    terms = {node: term.replace(".", "_") for term, node in reversed(list(known.terms.items()))}
    plan = planned(flat, columns, switches, terms)
    return {
        "title": title,
        "scalars": [parameter.name for parameter in inputs if parameter.name not in columns],
        "columns": [parameter.name for parameter in inputs if parameter.name in columns],
        "outputs": list(outputs),
        **lines(plan, PYTHON),
    }


def _steps(graph: Graph, rules: Sequence[Node], name: Node) -> Iterator[Node]:
    """Yield numbers that must divide the symbol: of a condition, or of one that something else may make superfluous."""
    for rule in rules:
        parts = rule.args if rule.op == ops.OR else (rule,)
        divisions = [part for part in parts if part.op == ops.DIVIDES and part.args[1] is name]
        others = [part for part in parts if part not in divisions]
        if len(divisions) == 1:
            step = divisions[0].args[0]
            for other in others:
                step = graph.select(other, graph.number(1), step)
            yield step
