"""A space as text and numbers, and the problem that a nest is made for: formulas read, and folded where they can be."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ..expressions import ops
from ..expressions.formulas import conditions_of, formulas
from ..expressions.graph import Graph, Node
from ..expressions.intervals import Limits
from ..expressions.source import parse
from .problem import ESTIMATE, Best, Front, Histogram, NestAxis, Problem, Question, Rows

#: A name in a formula, with its dots.
_NAME = re.compile(r"[A-Za-z_][\w.]*")
#: The term that verdicts are about.
PEAK = "peak"


@dataclass(frozen=True)
class Asked:
    """A question as text: ``kind`` is best, front, histogram or rows; see ``problem`` for the rest."""

    kind: str
    name: str
    formulas: tuple[str, ...]
    among: int | None
    per: tuple[str, ...] = ()


@dataclass(frozen=True)
class Posing:
    """Dependencies of the source of a nest, besides the formulas.

    ``symbols`` are the parameters with their least and largest values, ``folded`` those with a value that becomes part
    of the formulas.
    ``derived`` has formulas of further ones, each of symbols that are known before it. ``automatic`` conditions are
    tried before the rules of the evaluator, ``declared`` ones after them. ``limits`` are terms by their names in the
    function of verdicts. A nest that is not ``literal`` serves all
    sizes of the axes; the sizes here then only help to choose the order of the loops. With ``skipping``, tables that
    nothing in fits are passed over.
    """

    symbols: Mapping[str, Limits]
    axes: tuple[NestAxis, ...]
    folded: Mapping[str, int]
    derived: Mapping[str, str]
    automatic: tuple[tuple[str, str], ...]
    declared: tuple[tuple[str, str], ...]
    questions: tuple[Asked, ...]
    literal: bool
    skipping: bool = False
    limits: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> set[str]:
        """Return the names of symbols and terms in its conditions and questions."""
        texts = [text for _, text in (*self.automatic, *self.declared)] + [*self.limits.values()]
        for asked in self.questions:
            texts += [*asked.formulas, *asked.per]
        return {name for text in texts for name in _NAME.findall(text)}

    def key(self, evaluator: str) -> str:
        """Return a digest of all that a nest depends on, with the source of its evaluator."""
        plain = asdict(self) | {
            "symbols": (), "axes": [(axis.name, axis.parameters, axis.size) for axis in self.axes],
        }
        return hashlib.sha256((evaluator + json.dumps(plain, sort_keys=True)).encode()).hexdigest()[:16]


def posed(posing: Posing, evaluator: str, verdicts: str) -> tuple[Problem, Mapping[Node, str]]:
    """Return the problem of a space, and the names of terms in it.

    ``evaluator`` is the source of an evaluator, ``verdicts`` that of the function that chooses a verdict. Raises
    FormulaError for a text that is no formula.
    """
    return _Poser(posing, evaluator).posed(verdicts)


class _Poser:
    """Reads the texts of one posing over one graph."""

    def __init__(self, posing: Posing, evaluator: str) -> None:
        self.posing, self.graph = posing, Graph()
        self.terms: dict[str, Node] = {}
        self.values: dict[str, Node] = {name: self.graph.number(value) for name, value in posing.folded.items()}
        for name, text in posing.derived.items():
            self.values[name] = self._quantity(text)
        known = formulas(evaluator, self.graph, {PEAK, *posing.names()}, self.values)
        self.terms, self.rules = dict(known.terms), known.rules

    def posed(self, verdicts: str) -> tuple[Problem, Mapping[Node, str]]:
        """Return the problem."""
        graph, posing, estimate = self.graph, self.posing, self.graph.name(ESTIMATE)

        def of_verdict(name: str) -> Node:
            return estimate if name == ESTIMATE else self._resolve(posing.limits.get(name, name))

        conditions = [*self._read(posing.automatic), *self.rules, *self._read(posing.declared)]
        problem = Problem(
            graph, posing.axes, tuple((name, node) for name, node in conditions if node is not graph.truth(True)),
            self.terms[PEAK], tuple(conditions_of(verdicts, graph, of_verdict)),
            tuple(self._question(asked, estimate) for asked in posing.questions),
        )
        return problem, {node: name.replace(".", "_") for name, node in reversed(self.terms.items())}

    def _resolve(self, name: str) -> Node:
        """Resolve a derived symbol as a term of the evaluator, unless the space derives it otherwise."""
        if name in self.values:
            return self.values[name]
        if name in self.terms:
            return self.terms[name]
        if name in self.posing.symbols:
            return self.graph.name(name)
        raise KeyError(name)

    def _read(self, texts: tuple[tuple[str, str], ...]) -> list[tuple[str, Node]]:
        return [(name, parse(text, self.graph, self._resolve)) for name, text in texts]

    def _quantity(self, text: str) -> Node:
        node = parse(text, self.graph, self._resolve)
        if node.is_condition and node.op != ops.TRUTH:
            return self.graph.select(node, self.graph.number(1), self.graph.number(0))
        return node

    def _question(self, asked: Asked, estimate: Node) -> Question:
        # Formulas of the peak are computed before it is known which entries broke a condition.
        nodes = map(self._quantity, asked.formulas)
        keys = tuple(estimate if node is self.terms[PEAK] else node for node in nodes)
        if asked.kind == "best":
            return Best(asked.name, keys, asked.per, asked.among)
        if asked.kind == "front":
            return Front(asked.name, keys, asked.among)
        if asked.kind == "rows":
            return Rows(asked.name, (estimate, *keys), asked.among)
        return Histogram(asked.name, keys, asked.among)


