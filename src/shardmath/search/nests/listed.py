"""A nest of layouts that are looked at one by one: each has its own best list of layers for its machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.account.judged import NAMES, RULE_NAMES
from shardmath.compiler.columns import rules_met
from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Graph, Node, exact, ordered
from shardmath.compiler.expressions.source import parse
from shardmath.errors import InputError
from shardmath.search.nests.answers import Answer
from shardmath.search.nests.configurations import Configuration
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.posing import evaluator_source
from shardmath.search.nests.rows import Table
from shardmath.search.spaces import Part, Question
from shardmath.search.spaces.rows import constrained

#: Candidates that are looked at: the legal ones take some hundredths of a second each.
MOST = 10**7


class ListedNest(Nest):
    """A part of a space whose stages have machines of their own.

    What follows from axes and the rules of the first machine are judged on columns; what is left is put on its GPUs,
    and judged by the rules of the others, declared constraints and its memory. Raises InputError for too many
    candidates.
    """

    def __init__(self, part: Part, questions: Sequence[Question]) -> None:
        super().__init__(part, questions)
        if part.size > MOST:
            assert part.sharing is not None
            rule = f"must give at most {MOST:,} layouts {part.sharing.words}, not {part.size:,}: name fewer sizes"
            raise InputError("axes", [axis.name for axis in part.axes], rule)
        rules, own = [name for name, _, _ in part.evaluator.terms.RULES], list(enumerate(part.constraints))
        self.conditions = (*(item.name for item in part.constraints), *rules)
        self._automatic = [place for place, item in own if item.automatic]
        self._rules = range(len(own), len(self.conditions))
        self._declared = [place for place, item in own if not item.automatic]
        self.tried = (*self._automatic, *self._rules, *self._declared)
        self._graph = Graph()
        self._nodes: dict[str, Node] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ListedNest, (self.part, self.asked)

    @property
    def origin(self) -> tuple[object, ...]:
        """The formulas, and the machines of stages."""
        return "listed", evaluator_source(self.part), repr(self.part.sharing)

    @property
    def outermost(self) -> tuple[str, ...]:
        """All axes: a shard is one configuration."""
        return tuple(axis.name for axis in self.part.axes)

    def swept(self, start: int, stop: int, known: Answer, table: Table | None = None) -> Answer:
        """See ``Nest``."""
        answer = known.seed()
        if table is not None:
            table.size[0] = 0
        legal = [item for number in self._legal_on_first(np.arange(start, stop), answer)
                 if (item := self._on_all(number, answer)) is not None]
        verdicts = np.array([NAMES.index(item.verdict) for item in legal], np.int64)
        answer.verdicts += np.bincount(verdicts, minlength=len(answer.verdicts))
        answer.evaluated += len(legal)

        def keys_of(place: int, among: NDArray[np.int64]) -> NDArray[np.float64]:
            question = self.asked[place]
            texts = question.formulas if question is not self.rows else ("peak", *question.formulas)
            keys = [[float(self._value(text, legal[at])) for text in texts] for at in among]
            return np.array(keys).reshape(len(among), len(texts))

        self.take(answer, table, np.array([item.number for item in legal], np.int64), verdicts, keys_of)
        return answer

    def seconds(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """See ``Nest``."""
        return np.array([float(Configuration(self.part, number, {}).terms["step.time"]) for number in numbers.tolist()])

    def rules(self, numbers: NDArray[np.int64], peaks: NDArray[np.int64]) -> NDArray[np.int64]:
        """See ``Nest``."""
        verdicts = [RULE_NAMES.index(Configuration(self.part, number, {}).rule_80) for number in numbers.tolist()]
        return np.array(verdicts, np.int64)

    def _legal_on_first(self, numbers: NDArray[np.int64], answer: Answer) -> list[int]:
        """Return configurations that meet what follows from axes, and the rules of the first machine."""
        rows = constrained(self.part, numbers, answer.broken)
        kept = np.ones(len(rows), np.bool_)
        for place, met in zip(self._rules, rules_met(self.part.evaluator.terms, rows.symbols), strict=True):
            answer.broken[place] += int((kept & ~np.broadcast_to(met, len(rows))).sum())
            kept &= met
        chosen: list[int] = rows.numbers[kept].tolist()
        return chosen

    def _on_all(self, number: int, answer: Answer) -> Configuration | None:
        """Return a configuration that is legal on all machines and meets what is declared; else it counts as broken."""
        item, terms = Configuration(self.part, number, {}), self.part.evaluator.terms
        assert item.pipeline is not None
        for stage in item.pipeline.stages:
            met = terms.rules_met(*(stage[name] for name in terms.INPUTS))
            if not all(met):
                answer.broken[self._rules[met.index(False)]] += 1
                return None
        for place in self._declared:
            if not self._value(self.part.constraints[place].text, item):
                answer.broken[place] += 1
                return None
        return item

    def _value(self, text: str, item: Configuration) -> Fraction | bool:
        """Return a formula or a condition of the space for a configuration."""
        if text not in self._nodes:
            self._nodes[text] = parse(text, self._graph, self._graph.name)
        node = self._nodes[text]
        names = [str(part.value) for part in ordered([node]) if part.op == ops.NAME]
        known: Mapping[str, Any] = {**item.terms, **item.values}
        return exact([node], {name: Fraction(known[name]) for name in names})[0]
