"""A nest whose loops run on columns of NumPy: it answers at once, as nothing is compiled.

For spaces with few legal configurations that is as quick as machine code, and needs no cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.nests.order import nested_order
from shardmath.compiler.nests.posing import posed
from shardmath.compiler.nests.problem import ESTIMATE, Problem
from shardmath.compiler.nests.stored import restored, stored
from shardmath.files.cached import cached_text
from shardmath.search.nests.answers import Answer
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.posing import evaluator_source, key_in_cache, posing_of, verdict_source
from shardmath.search.nests.rows import Table
from shardmath.search.nests.turns import Loops, Turns
from shardmath.search.spaces import Part, Question


class ColumnNest(Nest):
    """A part of a space whose loops run on columns. Pickling keeps its problem, as text."""

    def __init__(self, part: Part, questions: Sequence[Question], text: str | None = None) -> None:
        """Read the problem, unless its ``text`` is given."""
        super().__init__(part, questions)
        self._text = text or _problem(part, self.asked)
        self._pose(restored(self._text))

    @classmethod
    def of_problem(cls, part: Part, questions: Sequence[Question], problem: Problem) -> ColumnNest:
        """Return the nest of a problem that is there already."""
        return cls(part, questions, stored(problem))

    def _pose(self, problem: Problem) -> None:
        self.problem, self.order = problem, nested_order(problem)
        self.conditions = tuple(name for name, _ in problem.conditions)
        keys = [node for question in problem.questions for node in question.keys]
        estimate = {problem.graph.name(ESTIMATE): problem.estimate}
        nodes = problem.graph.replaced([*problem.verdicts, *keys], estimate)
        self._verdicts, left = nodes[:len(problem.verdicts)], iter(nodes[len(problem.verdicts):])
        self._keys = [[next(left) for _ in question.keys] for question in problem.questions]
        of_legal = [problem.estimate, *self._verdicts]
        of_some = [*self._verdicts, *(node for keys in self._keys for node in keys)]
        self._loops = Loops(problem, self.order, self.part.axes, self.part.fixed, of_legal, of_some)
        self.tried = self._loops.tried

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnNest, (self.part, self.asked, self._text)

    @property
    def origin(self) -> tuple[object, ...]:
        """The problem, and the order of its loops."""
        return "columns", self._text

    @property
    def outermost(self) -> tuple[str, ...]:
        """The axes that are shared out."""
        return tuple(axis.name for axis in self.order.shard)

    def exceeds(self, operations: int) -> bool:
        """Return True if a sweep of all takes more operations on single numbers than that."""
        return self._loops.exceed(operations, self.shards)

    def swept(self, start: int, stop: int, known: Answer, table: Table | None = None) -> Answer:
        """See ``Nest``."""
        answer = known.seed()
        if table is not None:
            table.size[0] = 0
        last = max((_last(question.among, len(self._verdicts)) for question in self.problem.questions), default=-1)

        def chosen(turns: Turns) -> NDArray[np.bool_]:
            verdicts = self._verdict(turns)
            answer.verdicts += np.bincount(verdicts, minlength=len(answer.verdicts))
            answer.evaluated += len(verdicts)
            among: NDArray[np.bool_] = verdicts <= last
            return among

        for turns in self._loops.legal(start, stop, answer.broken, chosen):
            self._take(turns, answer, table)
        return answer

    def _verdict(self, turns: Turns) -> NDArray[np.int64]:
        """Return the number of the first verdict that holds, for each."""
        verdicts = np.full(len(turns.numbers), len(self._verdicts))
        for number in range(len(self._verdicts) - 1, -1, -1):
            verdicts[turns.column(self._verdicts[number])] = number
        return verdicts

    def _take(self, turns: Turns, answer: Answer, table: Table | None) -> None:
        def keys_of(place: int, among: NDArray[np.int64]) -> NDArray[np.float64]:
            columns = (turns.column(node)[among].astype(np.float64) for node in self._keys[place])
            return np.stack([*columns], axis=-1)

        self.take(answer, table, turns.numbers, self._verdict(turns), keys_of)


def _last(among: int | None, verdicts: int) -> int:
    """Return the last verdict that a question is about."""
    return verdicts if among is None else among - 1


def _problem(part: Part, questions: tuple[Question, ...]) -> str:
    """Return the problem of a part as text: from the cache, else read from its formulas."""
    posing = posing_of(part, questions, literal=False)
    return cached_text("problems", f"{key_in_cache(part, posing)}.json",
                       lambda: stored(posed(posing, evaluator_source(part), verdict_source())[0]))
