"""A part of a space with questions, ready to be swept: the same answers, however its loops are gone through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from shardmath.account.judged import NAMES
from shardmath.compiler.columns import branch_column
from shardmath.files.cached import key_of
from shardmath.generated.definitions import rule_80
from shardmath.search.nests import answers
from shardmath.search.nests.answers import Answer, BestAnswer, FrontAnswer, HistogramAnswer
from shardmath.search.nests.rows import Table
from shardmath.search.spaces import Axis, Best, Part, Question, Rows
from shardmath.search.spaces.questions import AMONG
from shardmath.search.spaces.rows import constrained, legal_rows


class Nest(ABC):
    """A part of a space with questions.

    The configurations come in ``shards``: all those that share their place on the outermost axes. ``conditions`` are
    the names of what a configuration may break, ``tried`` their places in the order in which they are tried. ``rows``
    is the question whose answer is a table of its own for each stretch, if there is one; ``questions`` are the others.
    """

    conditions: tuple[str, ...]
    tried: tuple[int, ...]

    def __init__(self, part: Part, questions: Sequence[Question]) -> None:
        self.part = part
        self.questions = tuple(question for question in questions if not isinstance(question, Rows))
        self.rows = next((question for question in questions if isinstance(question, Rows)), None)
        self._sizes = {axis.name: axis.size for axis in part.axes}
        self._steps = steps(part.axes)

    @property
    def asked(self) -> tuple[Question, ...]:
        """All questions, in the order in which the loops answer them."""
        return self.questions if self.rows is None else (*self.questions, self.rows)

    @property
    def key(self) -> str:
        """A digest of all that answers depend on, and of what a shard is."""
        part = self.part
        described = part.labels, part.axes, sorted(part.fixed.items()), part.derived, part.constraints, self.asked
        return key_of(*self.origin, *described)

    @property
    @abstractmethod
    def origin(self) -> tuple[object, ...]:
        """Formulas, by a digest, and the order of the loops."""

    @property
    @abstractmethod
    def outermost(self) -> tuple[str, ...]:
        """The axes that the configurations of one shard have the same place on."""

    @property
    def size(self) -> int:
        """All configurations."""
        return self.part.size

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return prod(self._sizes[name] for name in self.outermost)

    @property
    def shard_size(self) -> int:
        """Configurations of one shard."""
        return self.size // self.shards

    def empty(self) -> Answer:
        """Return the answer before anything was swept."""
        groups = [
            prod(self._sizes[name] for name in question.per) if isinstance(question, Best) else 1
            for question in self.questions
        ]
        return answers.empty(self.questions, groups, len(self.conditions), len(NAMES))

    def table(self, start: int, stop: int) -> Table | None:
        """Room for the rows of shards ``start`` to ``stop``, if they are asked for."""
        return None if self.rows is None else Table.empty((stop - start) * self.shard_size, 1 + len(self.rows.of))

    @abstractmethod
    def swept(self, start: int, stop: int, known: Answer, table: Table | None = None) -> Answer:
        """Get the answer for shards ``start`` to ``stop`` alone; of questions, what is better than ``known`` or in it.

        Rows go to ``table``, which must be given if they are asked for.
        """

    def seconds(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the seconds of a step of legal configurations, which no answer of memory has; NaN for others."""
        return legal_rows(self.part, numbers).term("step.time") if self.part.timed else np.full(len(numbers), np.nan)

    def rules(self, numbers: NDArray[np.int64], peaks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the place of the 80 % rule's verdict among its names, for legal configurations and their peaks."""
        own = self.part.fixed.get("gpu_memory")
        memory = constrained(self.part, numbers).column("gpu_memory") if own is None else own
        return branch_column(rule_80, {"estimate": peaks, "gpu_memory": memory}, len(numbers))

    def take(
        self, answer: Answer, table: Table | None, numbers: NDArray[np.int64], verdicts: NDArray[np.int64],
        keys_of: Callable[[int, NDArray[np.int64]], NDArray[np.float64]],
    ) -> None:
        """Take legal configurations into an answer; ``keys_of`` has the keys of a question for those at some places."""
        items = list(answer.questions)
        for place, asked in enumerate(self.asked):
            among = np.flatnonzero(verdicts <= AMONG.index(asked.among))
            if not len(among):
                continue
            keys = keys_of(place, among)
            if place == len(items):
                assert table is not None
                table.append(numbers[among], verdicts[among], keys)
                continue
            item = items[place]
            if isinstance(item, BestAnswer):
                assert isinstance(asked, Best)
                items[place] = item.taken(keys, numbers[among], self.groups(asked, numbers[among]))
            elif isinstance(item, FrontAnswer):
                items[place] = item.taken(keys, numbers[among])
            elif isinstance(item, HistogramAnswer):
                items[place] = item.taken(keys[:, 0])
        answer.questions = tuple(items)

    def places_on(self, names: Sequence[str], numbers: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Yield the places of configurations on some axes, and the sizes of these."""
        for name in names:
            yield numbers // self._steps[name] % self._sizes[name], self._sizes[name]

    def groups(self, question: Best, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the group of a question that each configuration is in."""
        group = np.zeros_like(numbers)
        for place, size in self.places_on(question.per, numbers):
            group = group * size + place
        return group


def steps(axes: Sequence[Axis]) -> dict[str, int]:
    """Return how much a step on each axis adds to the number of a configuration: the last axis runs fastest."""
    of_axes, step = dict[str, int](), 1
    for axis in reversed(axes):
        of_axes[axis.name], step = step, step * axis.size
    return of_axes
