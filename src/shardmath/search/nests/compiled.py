"""A nest as machine code: found in the cache, or generated and compiled, and run on a stretch of shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.native.measured import quickest_here
from shardmath.compiler.native.objects import native
from shardmath.compiler.native.options import usual
from shardmath.compiler.nests.posing import Posing
from shardmath.files.cached import cached_module, key_of, source_of
from shardmath.search.nests import answers
from shardmath.search.nests.answers import Answer
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.posing import evaluator_source, is_large, key_in_cache, posing_of, verdict_source
from shardmath.search.nests.rows import Table
from shardmath.search.spaces import Axis, Part, Question


class CompiledNest(Nest):
    """A part of a space whose loops are machine code.

    Pickling keeps the source and not the machine code, so that another machine needs no file of this one.
    """

    def __init__(
        self, part: Part, questions: Sequence[Question], module: ModuleType | None = None,
        compiled: Callable[[ModuleType, str], Callable[..., Any]] | None = None,
    ) -> None:
        """Find or make the nest, unless its ``module`` is given; its functions are those that are ``compiled``.

        By itself it compiles them, for a large part with options that were measured on this processor.
        """
        super().__init__(part, questions)
        self.module = module or self._made()
        self._compiled = partial(compiled or _native_for(part), self.module)
        self.conditions, self.tried = self.module.CONDITIONS, self.module.TRIED
        axes = {axis.name: axis for axis in part.axes}
        self._outer = [axes[name] for name in self.module.OUTER]
        self._block = [axes[name] for name in self.module.BLOCK]
        self._fused = [axes[name] for name in self.module.FUSED]

    def __reduce__(self) -> tuple[Any, ...]:
        return _sent, (type(self), self.part, self.asked, Path(str(self.module.__file__)).stem, source_of(self.module))

    @property
    def origin(self) -> tuple[object, ...]:
        """The key of the module, and the order of its loops."""
        return self.module.KEY, self.module.OUTER, self.module.SHARD_AXES

    @property
    def outermost(self) -> tuple[str, ...]:
        """The axes that are shared out."""
        return tuple(self.module.OUTER[:self.module.SHARD_AXES])

    def swept(self, start: int, stop: int, known: Answer, table: Table | None = None) -> Answer:
        """See ``Nest``."""
        while True:
            answer = known.seed()
            arrays = [array for item in answer.questions for array in item.arrays]
            if table is not None:
                table.size[0] = 0
                arrays += table.arrays
            entries, alive, broken, prepared, row = self._prepared
            answer.broken += broken * (self._below * (stop - start))
            if not alive:
                return answer
            answer.evaluated = self._compiled("sweep")(
                start, stop, entries, alive, *self._arrays, prepared, self.module.aligned(row), *self._places,
                *self._turns(), answer.broken, answer.verdicts, *arrays,
            )
            if answer.evaluated >= 0:
                return answer
            known = Answer(known.broken, known.verdicts, tuple(
                item.with_room(4 * len(item.numbers)) if isinstance(item, answers.FrontAnswer) else item
                for item in known.questions
            ))

    def _made(self) -> ModuleType:
        return _module(self.part, self.asked)

    @cached_property
    def _below(self) -> int:
        """Combinations of the axes inside a shard but outside of the table."""
        return prod(axis.size for axis in (*self._outer[self.module.SHARD_AXES:], *self._block))

    @cached_property
    def _prepared(self) -> tuple[int, int, NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        places = _places(self._fused)
        columns = _columns(self._fused)
        entries = places.shape[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            prepared, row, broken, alive = self.module.prepare(
                entries, *(float(self.part.fixed[name]) for name in self.module.SCALARS),
                *(columns[name] for name in self.module.COLUMNS),
            )
        return entries, alive, broken, prepared, row

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        sizes = np.array([axis.size for axis in self._outer], np.int64)  # none if all axes are fused
        rows = [(axis, symbol) for axis in self._outer for symbol in axis.values]
        values = np.zeros((len(rows), int(sizes.max(initial=1))))
        for number, (axis, symbol) in enumerate(rows):
            values[number, : axis.size] = axis.values[symbol]
        return sizes, values

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the strides of the outer axes in the number of a configuration, and the offset of each entry."""
        return np.array([self._steps[axis.name] for axis in self._outer], np.int64), self._numbers(self._fused)

    def _turns(self) -> Iterator[NDArray[Any]]:
        """Return the columns of the fused loops, and buffers for their values, places and numbers."""
        if self._block:
            turns = prod(axis.size for axis in self._block)
            stride, columns = self.module.BLOCK_STRIDE, _columns(self._block)
            columns_of_turns = np.zeros((len(self.module.BLOCK_PARAMETERS), stride))
            for number, symbol in enumerate(self.module.BLOCK_PARAMETERS):
                columns_of_turns[number, :turns] = columns[symbol]
            yield self.module.aligned(columns_of_turns.reshape(-1))
            yield self.module.aligned(np.zeros(self.module.BLOCK_ROWS * stride))
            yield np.zeros(2 * stride, np.int64)
            yield self._numbers(self._block)

    def _numbers(self, axes: Sequence[Axis]) -> NDArray[np.int64]:
        """Return the offset of each combination of values on some axes in the number of a configuration."""
        numbers: NDArray[np.int64] = np.array([self._steps[axis.name] for axis in axes], np.int64) @ _places(axes)
        return numbers


def _native_for(part: Part) -> Callable[[ModuleType, str], Callable[..., Any]]:
    return partial(native, options=quickest_here if is_large(part) else usual)


class NumbaNest(CompiledNest):
    """A nest that Numba compiles: the same numbers, to the last bit, and seconds later the first time."""

    def __init__(self, part: Part, questions: Sequence[Question], module: ModuleType | None = None) -> None:
        from shardmath.compiler.native.jitted import jitted

        super().__init__(part, questions, module, jitted)


def _places(axes: Sequence[Axis]) -> NDArray[np.int64]:
    """Return the place on each of some axes of all combinations, the last axis running fastest."""
    shape = [axis.size for axis in axes]
    return np.indices(shape, np.int64).reshape(len(shape), prod(shape))


def _columns(axes: Sequence[Axis]) -> dict[str, NDArray[np.float64]]:
    """Return the columns that all combinations of values on some axes set."""
    return {
        symbol: np.asarray(values, np.float64)[place]
        for axis, place in zip(axes, _places(axes), strict=True) for symbol, values in axis.values.items()
    }


def _module(part: Part, questions: tuple[Question, ...]) -> ModuleType:
    """Return the module with the nest: for any sizes of its axes, or for just these if that pays."""
    if not is_large(part):
        module = _cached(part, posing_of(part, questions, literal=False))
        if prod(axis.size for axis in part.axes if axis.name in module.FUSED) <= module.ROOM:
            return module
    return _cached(part, posing_of(part, questions, literal=True))


def module_for_gpu(part: Part, questions: tuple[Question, ...]) -> ModuleType:
    """Return the module with the nest and a kernel: always for these sizes, as spaces for a GPU are large."""
    return _cached(part, posing_of(part, questions, literal=True), kernel=True)


def _cached(part: Part, posing: Posing, kernel: bool = False) -> ModuleType:
    def source() -> str:
        from shardmath.compiler.nesting import nest_of

        return nest_of(part.evaluator.name, posing, evaluator_source(part), verdict_source(), kernel=kernel)

    return cached_module("nests_cuda" if kernel else "nests", key_in_cache(part, posing), source)


def _sent(
    kind: type[CompiledNest], part: Part, questions: tuple[Question, ...], name: str, source: str,
) -> CompiledNest:
    """Return a nest that was made elsewhere, perhaps by another version: under its name unless that is taken."""
    module = cached_module("nests", name, lambda: source)
    if source_of(module) != source:
        module = cached_module("nests", key_of(source), lambda: source)
    return kind(part, questions, module)
