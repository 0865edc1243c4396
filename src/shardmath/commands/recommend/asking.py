"""The questions behind advice: the best layouts of every kind, and what time and memory can be traded for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from shardmath.search.answered import Answered, answered, asked_again, is_bounded, is_huge
from shardmath.search.choosing import PROGRAMS, SLOWER
from shardmath.search.nests.configurations import Configuration
from shardmath.search.nests.running import Progress
from shardmath.search.spaces import Best, Front, Part, Question, Space
from shardmath.search.spaces.declared import IMPLEMENTATION
from shardmath.search.spaces.usual import BY_TIME

if TYPE_CHECKING:
    from distributed import Client

#: The sizes that make a kind of layout, and those whose other values are tried one by one.
KINDS = ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel")
ALONE = ("recompute", "micro_batch_size", "virtual_pipeline")
_FASTEST = (Best("best", BY_TIME, 1),)
#: The two objectives of a front, and the peak by its name.
TRADED, PEAK = ("step.time", "peak"), "peak"


def _questions(space: Space, alone: Sequence[str] = ALONE) -> tuple[Question, ...]:
    return (
        *_FASTEST,
        Best("kinds", BY_TIME, 1, per=tuple(name for name in (IMPLEMENTATION, *KINDS) if name in space.axes)),
        *(Best(PROGRAMS, BY_TIME, 1, per=(name,)) for name in (IMPLEMENTATION,) if name in space.axes),
        *(_best_by(name) for name in alone if name in space.axes),
        Front("fitting", TRADED), Front("legal", TRADED, among="legal"),
    )


@dataclass(frozen=True)
class Asked:
    """A job for advice; ``spaces_for`` gives its spaces with so many times the batch.

    With ``every_switch`` the best of every place of one axis is not asked for, and nothing is asked again. ``progress``
    hears of the first search, which ends with what it has once ``stopped`` says so. Long loops run on the cluster of
    ``client``.
    """

    spaces_for: Callable[[int], tuple[Space, ...]]
    every_switch: bool = False
    progress: Progress | None = None
    stopped: Callable[[], bool] = lambda: False
    client: Client | None = None

    @cached_property
    def answers(self) -> Answered:
        """The answers to all questions."""
        alone = () if self.every_switch else ALONE
        return answered(self.spaces_for(1), lambda space: _questions(space, alone), self.progress, SLOWER, self.stopped,
                        self.client)

    def with_values(self, values: Mapping[str, int], implementation: str) -> Configuration | None:
        """Return the fastest layout with other values of symbols, of an implementation and of others that have them."""
        nests = [nest for nest in self.answers.nests if nest.part.evaluator.implementation == implementation
                 or values.keys() <= nest.part.fixed.keys()]
        parts = (nest.part for nest in nests)
        return asked_again(parts, self._again, values, nests, self.client).first(self._again[0].name)

    def with_batch(self, times: int) -> Configuration | None:
        """Return the fastest layout with so many times the batch."""
        spaces = self.spaces_for(times)
        looped = self.client is not None and not is_bounded(part for space in spaces for part in space.parts())
        client = self.client if looped else None
        return answered(spaces, lambda _: self._again, client=client).first(self._again[0].name)

    @cached_property
    def _again(self) -> tuple[Best, ...]:
        """The questions of a new search: the first has the fastest layout among its answers.

        Loops of a huge part are there for the best of each value of one axis: they take a third of the time of loops
        for the fastest alone, as a bound of memory passes over most of their tables.
        """
        names = [name for name in ALONE if all(name in _axes(part) for part in self.answers.parts)]
        return tuple(map(_best_by, names)) if any(map(is_huge, self.answers.parts)) and names else _FASTEST


def _axes(part: Part) -> set[str]:
    return {axis.name for axis in part.axes}


def _best_by(name: str) -> Best:
    return Best(f"by_{name}", BY_TIME, 1, per=(name,))
