"""Sweep a part: chunks of shards are handed out, answers merged as they come, stopped and resumed between chunks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from shardmath.search.nests.answers import Answer
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.rows import Table

#: Configurations of one chunk on a thread at least: enough that handing it out costs nothing.
_CHUNK = 1 << 22
#: Configurations of one chunk at most, where all of their rows may be held in memory.
_ROWS = 1 << 19
#: Chunks at least, so that all workers end at the same time and a stop is soon heard.
_CHUNKS = 16

#: Answer of a chunk, and its rows if they are asked for.
Swept = tuple[Answer, Table | None]
#: Called with the configurations done and all.
Progress = Callable[[int, int], None]
#: Called with a stretch of shards and its rows.
OnRows = Callable[[int, int, Table], None]


@dataclass
class Run:
    """How far a part has been swept: ``done`` are the stretches of shards, ascending and apart."""

    answer: Answer
    done: list[tuple[int, int]] = field(default_factory=list)

    @property
    def shards(self) -> int:
        """Shards that are done."""
        return sum(stop - start for start, stop in self.done)

    def add(self, start: int, stop: int, answer: Answer) -> None:
        """Take the answer for one more stretch."""
        joined: list[tuple[int, int]] = []
        for stretch in sorted([*self.done, (start, stop)]):
            if joined and joined[-1][1] == stretch[0]:
                joined[-1] = (joined[-1][0], stretch[1])
            else:
                joined.append(stretch)
        self.answer, self.done = self.answer.merged(answer), joined

    def left(self, shards: int, chunk: int) -> Iterator[tuple[int, int]]:
        """Yield the unfinished shards in stretches of at most ``chunk``."""
        start = 0
        for done, after in [*self.done, (shards, shards)]:
            while start < done:
                stop = min(start + chunk, done)
                yield start, stop
                start = stop
            start = after


@dataclass(frozen=True)
class Workers:
    """Who sweeps a nest: ``submit`` promises a stretch, given what is known before; ``count`` work at the same time.

    ``chunk`` is how many configurations each takes at least, so that handing them out costs little.
    """

    submit: Callable[[int, int, Answer], Future[Swept]]
    count: int
    chunk: int


def chunk_of(nest: Nest, workers: int, least: int = _CHUNK) -> int:
    """Return shards of one chunk."""
    wanted = -(-least // nest.shard_size) if nest.rows is None else min(least, _ROWS) // nest.shard_size
    return max(1, min(wanted, nest.shards // (_CHUNKS * workers)))


@contextmanager
def on_threads(nest: Nest, threads: int | None = None) -> Iterator[Workers]:
    """Yield threads of this process, as a nest holds no lock; by default no more than have a chunk to do."""
    count = threads or min(os.cpu_count() or 1, -(-nest.size // _CHUNK))
    with ThreadPoolExecutor(count) as pool:
        yield Workers(lambda start, stop, known: pool.submit(swept, nest, start, stop, known), count, _CHUNK)


def swept(nest: Nest, start: int, stop: int, known: Answer) -> Swept:
    """Return one chunk: a function of its arguments alone."""
    table = nest.table(start, stop)
    answer = nest.swept(start, stop, known, table)
    return answer, None if table is None else table.cut(0, len(table))


def run(
    nest: Nest, started: Run | None = None, *, threads: int | None = None,
    workers: AbstractContextManager[Workers] | None = None, progress: Progress | None = None,
    after_chunk: Callable[[Run], None] | None = None, on_rows: OnRows | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Run:
    """Sweep all of ``nest`` that ``started`` has not done yet, on ``workers``, or else on ``threads``.

    Every chunk looks for what is better than the answer so far. ``on_rows`` is called with the rows of a chunk before
    it counts as done, ``after_chunk`` with the state after every chunk: it is a valid state to begin again from. Once
    ``stopped`` says so, nothing more is begun. The answer does not depend on who works, nor on how many.
    """
    state = started or Run(nest.empty())
    waiting: dict[Future[Swept], tuple[int, int]] = {}

    def collect() -> None:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            start, stop = waiting.pop(future)
            answer, table = future.result()
            if table is not None and on_rows is not None:
                on_rows(start, stop, table)
            state.add(start, stop, answer)
            if progress is not None:
                progress(state.shards * nest.shard_size, nest.size)
            if after_chunk is not None:
                after_chunk(state)

    with workers or on_threads(nest, threads) as those:
        try:
            for start, stop in state.left(nest.shards, chunk_of(nest, those.count, those.chunk)):
                if stopped():
                    break
                waiting[those.submit(start, stop, state.answer)] = (start, stop)
                if len(waiting) > those.count:
                    collect()
            while waiting:
                collect()
        except BaseException:
            for future in waiting:
                future.cancel()
            raise
    return state
