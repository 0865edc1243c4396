"""Sweep a part on threads: chunks of shards, answers merged as they come, stopped and resumed between chunks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from shardmath.sweeps.answers import Answer
from shardmath.sweeps.nests import Nest

#: Configurations of one chunk at least: enough that handing it out costs nothing.
_CHUNK = 1 << 22
#: Chunks at least, so that all threads end at the same time and a stop is soon heard.
_CHUNKS = 16

#: Called with the configurations done and all.
Progress = Callable[[int, int], None]


@dataclass
class Run:
    """How far a part has been swept: ``done`` are the stretches of shards, ascending and apart."""

    answer: Answer
    done: list[tuple[int, int]] = field(default_factory=list)

    @property
    def shards(self) -> int:
        """Shards that are done."""
        return sum(stop - start for start, stop in self.done)

    def add(self, start: int, stop: int, found: Answer) -> None:
        """Take the answer for one more stretch."""
        self.answer = self.answer.merged(found)
        joined: list[tuple[int, int]] = []
        for stretch in sorted([*self.done, (start, stop)]):
            if joined and joined[-1][1] == stretch[0]:
                joined[-1] = (joined[-1][0], stretch[1])
            else:
                joined.append(stretch)
        self.done = joined

    def left(self, shards: int, chunk: int) -> Iterator[tuple[int, int]]:
        """What is not done of so many shards, in stretches of at most ``chunk``."""
        start = 0
        for done, after in [*self.done, (shards, shards)]:
            while start < done:
                stop = min(start + chunk, done)
                yield start, stop
                start = stop
            start = after


def chunk_of(nest: Nest, workers: int) -> int:
    """Shards of one chunk."""
    return max(1, min(-(-_CHUNK // nest.shard_size), nest.shards // (_CHUNKS * workers)))


def run(
    nest: Nest, started: Run | None = None, *, threads: int | None = None, progress: Progress | None = None,
    after_chunk: Callable[[Run], None] | None = None,
) -> Run:
    """Sweep all of ``nest`` that ``started`` has not done yet.

    Every chunk looks for what is better than the answer so far. ``after_chunk`` is called with the state after every
    chunk: it is a valid state to begin again from. The answer does not depend on the number of threads.
    """
    state = started or Run(nest.empty())
    workers = threads or os.cpu_count() or 1
    chunks = state.left(nest.shards, chunk_of(nest, workers))
    if workers == 1:
        for start, stop in chunks:
            _take(state, nest, start, stop, nest.swept(start, stop, state.answer), progress, after_chunk)
        return state
    with ThreadPoolExecutor(workers) as pool:
        waiting: dict[Future[Answer], tuple[int, int]] = {}
        try:
            for start, stop in chunks:
                waiting[pool.submit(nest.swept, start, stop, state.answer)] = (start, stop)
                if len(waiting) > workers:
                    _collect(waiting, state, nest, progress, after_chunk)
            while waiting:
                _collect(waiting, state, nest, progress, after_chunk)
        except BaseException:
            for future in waiting:
                future.cancel()
            raise
    return state


def _collect(
    waiting: dict[Future[Answer], tuple[int, int]], state: Run, nest: Nest, progress: Progress | None,
    after_chunk: Callable[[Run], None] | None,
) -> None:
    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
        _take(state, nest, *waiting.pop(future), future.result(), progress, after_chunk)


def _take(
    state: Run, nest: Nest, start: int, stop: int, found: Answer, progress: Progress | None,
    after_chunk: Callable[[Run], None] | None,
) -> None:
    state.add(start, stop, found)
    if progress is not None:
        progress(state.shards * nest.shard_size, nest.size)
    if after_chunk is not None:
        after_chunk(state)
