"""What a space answers, one configuration after the other, in plain Python and exact fractions: slow and simple.

Nothing here is shared with compiled nests but the text of formulas and the plain module of an evaluator.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Graph, Node, exact, ordered
from shardmath.compiler.expressions.source import parse
from shardmath.generated.definitions import LIMITS, verdict
from shardmath.search.spaces import Best, Front, Histogram, Part, Question, Space

#: The verdicts with which a configuration belongs to a question.
AMONG = {"fits": {0}, "uncertain": {0, 1}, "legal": {0, 1, 2}}


@dataclass(frozen=True)
class Row:
    """One configuration. ``broken`` is the place of its first broken condition, None if it is legal.

    ``verdict``, ``peak`` (bytes) and ``keys`` (the values of each question's formulas, by its name) are those of a
    legal one.
    """

    part: int
    index: int
    labels: Mapping[str, int | str]
    values: Mapping[str, Fraction]
    broken: int | None
    verdict: int | None = None
    peak: Fraction | None = None
    keys: Mapping[str, tuple[Fraction, ...]] | None = None

    @property
    def number(self) -> tuple[int, int]:
        """What decides between equal configurations: the smaller one wins."""
        return self.part, self.index


def conditions(part: Part) -> tuple[str, ...]:
    """The names of all conditions: the constraints of the part, then the rules of its evaluator."""
    rules = part.evaluator.terms.RULES
    return (*(constraint.name for constraint in part.constraints), *(name for name, _, _ in rules))


def rows(part: Part, questions: Sequence[Question] = (), order: Sequence[int] | None = None) -> Iterator[Row]:
    """Every configuration of a part, by number.

    ``order`` has the places of the conditions in the order in which they are tried; without it, their own.
    """
    formulas = _Formulas(part, questions)
    tried = range(len(conditions(part))) if order is None else order
    assert sorted(tried) == list(range(len(conditions(part))))
    fixed = {name: Fraction(value) for name, value in part.fixed.items()}
    for index, places in enumerate(product(*(range(len(axis.labels)) for axis in part.axes))):
        labels = dict(part.labels) | {axis.name: axis.labels[at] for axis, at in zip(part.axes, places, strict=True)}
        values = dict(fixed)
        for axis, at in zip(part.axes, places, strict=True):
            values |= {name: Fraction(candidates[at]) for name, candidates in axis.values.items()}
        configuration = _Configuration(formulas, formulas.with_derived(values))
        broken = next((place for place in tried if not configuration.keeps(place)), None)
        if broken is None:
            peak, limits = configuration.terms["peak"], (configuration.terms[name] for name in LIMITS)
            keys = {question.name: configuration.keys(question) for question in questions}
            yield Row(part.number, index, labels, configuration.values, None, verdict(peak, *limits), peak, keys)
        else:
            yield Row(part.number, index, labels, configuration.values, broken)


def all_rows(space: Space) -> list[Row]:
    """Every configuration of a space, part after part."""
    return [row for part in space.parts() for row in rows(part, space.questions)]


def broken(found: Sequence[Row]) -> Counter[int]:
    """How many configurations broke each condition first, by its place."""
    return Counter(row.broken for row in found if row.broken is not None)


def verdicts(found: Sequence[Row]) -> Counter[int]:
    """How many legal configurations have each verdict."""
    return Counter(row.verdict for row in found if row.verdict is not None)


def best(found: Sequence[Row], question: Best) -> dict[tuple[int | str, ...], list[Row]]:
    """The best configurations for every combination of candidates of ``question.per`` that has one."""
    groups: dict[tuple[int | str, ...], list[Row]] = defaultdict(list)
    for row in _among(found, question):
        groups[tuple(row.labels[name] for name in question.per)].append(row)
    return {
        group: sorted(members, key=lambda row: (_keys(row, question), row.number))[:question.count]
        for group, members in groups.items()
    }


def front(found: Sequence[Row], question: Front) -> list[Row]:
    """The configurations that are not beaten, by number; of equal ones the first."""
    members: dict[tuple[Fraction, ...], Row] = {}
    for row in sorted(_among(found, question), key=lambda row: row.number):
        members.setdefault(_keys(row, question), row)
    return [
        row for keys, row in members.items()
        if not any(other != keys and all(a <= b for a, b in zip(other, keys, strict=True)) for other in members)
    ]


def histogram(found: Sequence[Row], question: Histogram) -> list[int]:
    """How many configurations lie below the first edge, between edges, and from the last one on."""
    counts = Counter(bisect_right(question.edges, _keys(row, question)[0]) for row in _among(found, question))
    return [counts[place] for place in range(len(question.edges) + 1)]


def _among(found: Sequence[Row], question: Question) -> list[Row]:
    return [row for row in found if row.verdict in AMONG[question.among]]


def _keys(row: Row, question: Question) -> tuple[Fraction, ...]:
    assert row.keys is not None
    return row.keys[question.name]


class _Formulas:
    """The texts of a part and of its questions, each read once."""

    def __init__(self, part: Part, questions: Sequence[Question]) -> None:
        self.part, self.graph = part, Graph()
        self._names: dict[Node, tuple[str, ...]] = {}
        self._values: dict[tuple[object, ...], Fraction | bool] = {}
        self.derived = {name: self._read(text) for name, text in part.derived.items()}
        self.constraints = [self._read(constraint.text) for constraint in part.constraints]
        self.questions = {question.name: [self._read(text) for text in question.formulas] for question in questions}

    def _read(self, text: str) -> Node:
        return parse(text, self.graph, self.graph.name)

    def with_derived(self, values: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """All symbols, the derived ones too; these are fractions where they do not come out whole."""
        known = dict(values)
        for name, node in self.derived.items():
            known[name] = Fraction(self.value(node, known))
        return known

    def names(self, node: Node) -> tuple[str, ...]:
        """The names in a formula."""
        if node not in self._names:
            self._names[node] = tuple(str(part.value) for part in ordered([node]) if part.op == ops.NAME)
        return self._names[node]

    def value(self, node: Node, known: Mapping[str, Fraction]) -> Fraction | bool:
        """The value of a formula, which is computed once for the same values."""
        used = {name: known[name] for name in self.names(node)}
        key = (node, *used.values())
        if key not in self._values:
            self._values[key] = exact([node], used)[0]
        return self._values[key]


class _Configuration:
    """One configuration; terms and rules are computed when they are asked for."""

    def __init__(self, formulas: _Formulas, values: Mapping[str, Fraction]) -> None:
        self.formulas, self.values = formulas, values
        self._module = formulas.part.evaluator.terms
        #: Evaluators are exact on integers, and ten times as fast on them as on fractions that are whole.
        self._plain = {name: int(value) if value.denominator == 1 else value for name, value in values.items()}
        self._terms: dict[str, Fraction] | None = None
        self._met: tuple[bool, ...] | None = None

    @property
    def terms(self) -> dict[str, Fraction]:
        """Every term by name."""
        if self._terms is None:
            self._terms = {}
            for module in self.formulas.part.modules:
                numbers = module.terms(*(self._plain[name] for name in module.INPUTS))
                self._terms |= {name: Fraction(number) for name, number in numbers.items()}
        return self._terms

    def keeps(self, place: int) -> bool:
        """Whether the condition at ``place`` holds."""
        own = self.formulas.constraints
        if place < len(own):
            return bool(self._value(own[place]))
        if self._met is None:
            self._met = self._module.rules_met(*(self._plain[name] for name in self._module.INPUTS))
        return bool(self._met[place - len(own)])

    def keys(self, question: Question) -> tuple[Fraction, ...]:
        """The values of a question's formulas."""
        return tuple(Fraction(self._value(node)) for node in self.formulas.questions[question.name])

    def _value(self, node: Node) -> Fraction | bool:
        names = self.formulas.names(node)
        known = {name: self.values[name] if name in self.values else self.terms[name] for name in names}
        return self.formulas.value(node, known)
