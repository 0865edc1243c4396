"""A part of a space as the problem that a loop nest is made for: the formulas of its evaluator, folded."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shardmath.generated import definitions
from shardmath.generated.definitions import DEFAULTS, PARAMETERS, VERDICTS
from shardmath.spaces import Best, Front, Part, Question, Rows
from shardmath.symbolic.nests import problem as nests
from shardmath.symbolic.nests.formulas import Formulas, conditions_of, formulas
from shardmath.symbolic.nests.graph import TRUTH, Graph, Node
from shardmath.symbolic.nests.plan import ESTIMATE
from shardmath.symbolic.nests.source import parse

if TYPE_CHECKING:
    from collections.abc import Callable

#: The term that verdicts are about.
PEAK = "peak"
_AMONG = {"fits": 1, "uncertain": 2, "legal": None}


def posed(part: Part, questions: Sequence[Question]) -> tuple[nests.Problem, Mapping[Node, str]]:
    """The problem of ``part``, and the names of terms in it.

    Values that few people change are put into the formulas; others stay symbols, so that one nest serves all models.
    """
    graph = Graph()
    known = formulas(inspect.getsource(part.evaluator.terms), graph)
    derived: dict[str, Node] = {}
    given = {name: graph.number(value) for name, value in part.fixed.items() if folded(name, value)}

    def resolve(name: str) -> Node:
        return derived.get(name) or given.get(name) or known.terms.get(name) or graph.name(name)

    for name, text in part.derived.items():
        derived[name] = _quantity(text, graph, resolve)
    values = {graph.name(name): node for name, node in (given | derived).items()}
    estimate = graph.name(ESTIMATE)
    terms = dict(zip(known.terms, graph.replaced(known.terms.values(), values), strict=True))
    peak = {terms[PEAK]: estimate}
    conditions = [
        (name, graph.replaced([node], values)[0]) for name, node in _conditions(part, known, graph, resolve)
    ]
    asked = [_question(question, graph, resolve, lambda node: graph.replaced(graph.replaced([node], values), peak)[0])
             for question in questions]
    verdicts = conditions_of(
        inspect.getsource(definitions.verdict), graph,
        {"estimate": estimate, "gpu_memory": resolve("gpu_memory")}.__getitem__,
    )
    axes = tuple(nests.NestAxis(axis.name, tuple(axis.values), len(axis.labels)) for axis in part.axes)
    posed_problem = nests.Problem(
        graph, axes, tuple(item for item in conditions if item[1] is not graph.truth(True)), terms[PEAK],
        tuple(verdicts), tuple(asked),
    )
    return posed_problem, {node: name.replace(".", "_") for name, node in reversed(terms.items())}


def folded(name: str, value: int) -> bool:
    """Whether a fixed value becomes part of the formulas: switches, and what few people set."""
    _, _, minimum, maximum, _, _ = PARAMETERS[name]
    return (minimum, maximum) == (0, 1) or DEFAULTS.get(name) == value


def _conditions(
    part: Part, known: Formulas, graph: Graph, resolve: Callable[[str], Node]
) -> list[tuple[str, Node]]:
    """What follows from the axes, the rules of the evaluator, and what was declared: tried in this order."""
    read = [(item, parse(item.text, graph, resolve)) for item in part.constraints]
    automatic = [(item.name, node) for item, node in read if item.automatic]
    declared = [(item.name, node) for item, node in read if not item.automatic]
    return [*automatic, *known.rules, *declared]


def _question(
    question: Question, graph: Graph, resolve: Callable[[str], Node], final: Callable[[Node], Node]
) -> nests.Question:
    keys = tuple(final(_quantity(text, graph, resolve)) for text in question.formulas)
    among = _AMONG[question.among]
    if isinstance(question, Best):
        return nests.Best(question.name, keys, question.count, question.per, among)
    if isinstance(question, Front):
        return nests.Front(question.name, keys, among)
    if isinstance(question, Rows):
        return nests.Rows(question.name, (final(resolve(PEAK)), *keys), among)
    return nests.Histogram(question.name, keys[0], len(question.edges), among)


def _quantity(text: str, graph: Graph, resolve: Callable[[str], Node]) -> Node:
    node = parse(text, graph, resolve)
    return graph.select(node, graph.number(1), graph.number(0)) if node.is_condition and node.op != TRUTH else node


#: Names of the verdicts, in order.
VERDICT_NAMES = tuple(name for name, _ in VERDICTS)
