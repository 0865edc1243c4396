"""Problem of a loop nest: axes, conditions, the estimate with its verdicts, and questions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..expressions.graph import Graph, Node

#: Name of the estimate in verdicts and questions: infinite where a condition is broken.
ESTIMATE = "estimate"


@dataclass(frozen=True)
class NestAxis:
    """One axis: the parameters whose values it sets, and how many candidates it has."""

    name: str
    parameters: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class Best:
    """The best configurations, as many as there is room for, for each combination of the axes ``per``.

    ``keys`` are compared one after the other, smaller is better; equal ones are sorted by their number. Only those
    count whose verdict is one of the first ``among``; all legal ones if that is None.
    """

    name: str
    keys: tuple[Node, ...]
    per: tuple[str, ...]
    among: int | None


@dataclass(frozen=True)
class Front:
    """The configurations that no other one beats in one of ``keys`` without losing in another."""

    name: str
    keys: tuple[Node, ...]
    among: int | None


@dataclass(frozen=True)
class Histogram:
    """How many configurations have a value, the only one of ``keys``, between edges that are given to the nest."""

    name: str
    keys: tuple[Node, ...]
    among: int | None


@dataclass(frozen=True)
class Rows:
    """All configurations themselves, with the values of ``keys``."""

    name: str
    keys: tuple[Node, ...]
    among: int | None


Question = Best | Front | Histogram | Rows


@dataclass(frozen=True)
class Problem:
    """A space as a nest sees it.

    ``conditions`` are named, in the order in which they are tried where nothing else decides it; ``verdicts`` are
    conditions on the estimate, of which the first that holds counts; what is left has the last verdict. Where
    ``skip`` holds, no entry of the table has another verdict than the last.
    """

    graph: Graph
    axes: tuple[NestAxis, ...]
    conditions: tuple[tuple[str, Node], ...]
    estimate: Node
    verdicts: tuple[Node, ...]
    questions: tuple[Question, ...]
    skip: Node | None = None

    @property
    def roots(self) -> list[Node]:
        """Everything that has to be computed."""
        nodes = [condition for _, condition in self.conditions] + [self.estimate, *self.verdicts]
        for question in self.questions:
            nodes += question.keys
        return nodes if self.skip is None else [*nodes, self.skip]

    def with_roots(self, roots: list[Node]) -> Problem:
        """Return the same problem with other expressions, in the order of ``roots``."""
        left = iter(roots)
        conditions = tuple((name, next(left)) for name, _ in self.conditions)
        estimate = next(left)
        verdicts = tuple(next(left) for _ in self.verdicts)
        questions = tuple(
            replace(question, keys=tuple(next(left) for _ in question.keys)) for question in self.questions
        )
        return Problem(self.graph, self.axes, conditions, estimate, verdicts, questions, next(left, None))
