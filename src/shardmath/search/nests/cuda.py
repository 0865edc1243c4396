"""Sweep on a GPU: the same nest as a kernel of Numba for CUDA, with the answers of the compiled one.

The GPU counts, and notes what may belong to an answer; the answer itself is put together here. Values are the same
float64: a quotient is rounded as on a processor, and a multiplication that is fused with an addition changes no integer
below 2**53.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.errors import InputError
from shardmath.search.nests.answers import Answer, BestAnswer, Found, FrontAnswer, HistogramAnswer
from shardmath.search.nests.compiled import CompiledNest, module_for_gpu
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.rows import Table
from shardmath.search.nests.running import Workers, on_threads
from shardmath.search.spaces import Best, Question

#: Configurations of one chunk at least, so that the GPU has enough to do between two looks at what was found.
_CHUNK = 1 << 30
#: Threads of a block at most, and of those that run together.
_THREADS, _WARP = 256, 32
#: Most blocks that share out the shards.
_BLOCKS = 65535
#: Configurations that there is room to note for a question, beside those that its answer has.
_ROOM = 1 << 18

Array = NDArray[Any]


def require_gpu() -> None:
    """Raise InputError where Numba finds no GPU."""
    try:
        from numba import cuda

        available = cuda.is_available()
    except ImportError:
        available = False
    if not available:
        rule = "must have a GPU that Numba finds, with its driver and the CUDA toolkit: pip install 'shardmath[cuda]'"
        raise InputError("device", "cuda", rule, "cpu")


@contextmanager
def on_gpu(nest: Nest) -> Iterator[Workers]:
    """Yield one thread that hands out large chunks: the GPU works on one at a time."""
    with on_threads(nest, 1) as workers:
        yield replace(workers, chunk=_CHUNK)


class CudaNest(CompiledNest):
    """A nest whose stretches are swept on the GPU. Raises InputError where there is none."""

    def __init__(self, *arguments: Any) -> None:
        require_gpu()
        super().__init__(*arguments)

    def swept(self, start: int, stop: int, known: Answer, table: Table | None = None) -> Answer:
        """Return the answer for shards ``start`` to ``stop`` alone, as that of ``Nest``.

        The kernel notes what is better than what is known when it starts. If that is more than there is room for, it
        starts again with what was noted: there is more room than an answer has, so each time something of it is new.
        """
        answer = known.seed()
        alive, broken = self._prepared[1:3]
        if table is not None:
            table.size[0] = 0
        while alive and not self._launched(start, stop, answer, table):
            pass
        answer.broken += broken * (self._below * (stop - start))
        return answer

    def _made(self) -> ModuleType:
        return module_for_gpu(self.part, self.asked)

    def _launched(self, start: int, stop: int, answer: Answer, table: Table | None) -> bool:
        """Run the kernel once and take what it noted; its counts and rows only if it had room for all, else False."""
        asked = [_asked(item) for item in answer.questions]
        rows = None if table is None else _Notes(len(table.numbers), 1 + table.values.shape[1])
        evaluated = np.zeros(1, np.int64)
        general = [_Counts(answer.broken), _Counts(answer.verdicts), _Counts(evaluated)]
        notes = [note for note in (*asked, rows) if isinstance(note, _Notes)]
        arrays = (array for note in (*general, *asked, rows) if note is not None for array in note.arrays)
        entries = self._prepared[0]
        threads = min(_THREADS, -(-entries // _WARP) * _WARP)
        grid = -(-entries // threads), min(stop - start, _BLOCKS)
        with _few_blocks_are_fine():
            self.module.sweep_on_gpu[grid, threads](start, stop, entries, *self._on_gpu, *arrays)
        answer.questions = tuple(
            self._taken(question, item, note) if isinstance(note, _Notes) else item
            for question, item, note in zip(self.questions, answer.questions, asked, strict=True)
        )
        if not all(note.complete for note in notes):
            return False
        for note in (*general, *asked):
            if isinstance(note, _Counts):
                note.add()
        answer.evaluated += int(evaluated[0])
        if table is not None and rows is not None:
            self._fill(table, *rows.read())
        return True

    def _taken(self, question: Question, item: Found, noted: _Notes) -> Found:
        """Return an answer with the configurations that were noted for it."""
        values, numbers = noted.read()
        if isinstance(item, FrontAnswer):
            return item.taken(values, numbers)
        assert isinstance(item, BestAnswer)
        assert isinstance(question, Best)
        return item.taken(values, numbers, self.groups(question, numbers))

    def _fill(self, table: Table, values: Array, numbers: Array) -> None:
        """Write rows in the order of the loops, whichever thread noted them first."""
        places = self.places_on([axis.name for axis in (*self._outer, *self._fused)], numbers)
        order = np.lexsort([place for place, _ in reversed(list(places))])
        size = len(numbers)
        table.size[0] = size
        table.numbers[:size], table.values[:size] = numbers[order], values[order, 1:]
        table.verdicts[:size] = values[order, 0]

    @cached_property
    def _on_gpu(self) -> list[Any]:
        """Return the inputs that all stretches share."""
        from numba import cuda

        prepared, row = self._prepared[3:]
        return [cuda.to_device(array) for array in (*self._arrays, prepared, row, *self._places)]


class _Counts:
    """Counts on the GPU, from 0 on, beside what they are kept by."""

    def __init__(self, total: Array, *edges: Array) -> None:
        from numba import cuda

        self.total = total
        self.arrays = [cuda.to_device(array) for array in (*edges, np.zeros_like(total))]

    def add(self) -> None:
        """Add them to the total."""
        self.total += self.arrays[-1].copy_to_host()


class _Notes:
    """Room on the GPU for configurations and their keys, beside the ``bounds`` that they are compared with."""

    def __init__(self, room: int, keys: int, *bounds: Array) -> None:
        from numba import cuda

        self.room = room
        self._found = cuda.device_array((room, keys)), cuda.device_array(room, np.int64)
        self._size = cuda.to_device(np.zeros(1, np.int64))
        self.arrays = [*map(cuda.to_device, bounds), *self._found, self._size]

    @cached_property
    def size(self) -> int:
        """How many the kernel wanted to note."""
        return int(self._size.copy_to_host()[0])

    @property
    def complete(self) -> bool:
        """Tell whether all of them exist."""
        return self.size <= self.room

    def read(self) -> tuple[Array, Array]:
        """Return the keys and the numbers of those that are there."""
        size = min(self.size, self.room)
        values, numbers = (array[:size].copy_to_host() for array in self._found)
        return values, numbers


def _asked(answer: Found) -> _Counts | _Notes:
    """Return the arrays that a kernel fills for a question.

    Configurations are noted that beat the last one of their group, or that no one of a front beats.
    """
    if isinstance(answer, HistogramAnswer):
        return _Counts(answer.counts, answer.edges)
    room, keys = _ROOM + answer.numbers.size, answer.keys.shape[-1]
    if isinstance(answer, BestAnswer):
        return _Notes(room, keys, np.ascontiguousarray(answer.keys[:, -1]), np.ascontiguousarray(answer.numbers[:, -1]))
    size = max(1, int(answer.size[0]))  # the first place of an empty front beats nothing
    return _Notes(room, keys, answer.keys[:size], answer.numbers[:size])


@contextmanager
def _few_blocks_are_fine() -> Iterator[None]:
    """Silence Numba's warning of few blocks where a space, or its rest, is small."""
    from numba.core.errors import NumbaPerformanceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumbaPerformanceWarning)
        yield
