"""Branch and bound against the sweep of every configuration of one large space: the same best and the same front.

    python -m benchmarks.whole_space [--threads N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.commands.explore import Explored, explore
from shardmath.commands.explore.answer import configurations_of
from shardmath.search.spaces import Best, Range, Space
from shardmath.search.spaces.files import read_space

SPACE = Path(__file__).resolve().parents[1] / "docs/spaces/llama-70b-512.toml"
#: Axes with fewer candidates than in the file: a sweep takes minutes, not hours.
NARROWED = {"first_stage_layers": Range(0, 10), "last_stage_layers": Range(0, 10), "recompute_num_layers": Range(1, 7)}
#: Configurations that the sweep ranks: copies along idle axes are among them, and counted once afterwards.
_RANKED = 10_000
#: Share of a key by which compiled loops and columns may round differently.
_ROUNDED = 1e-12


def narrowed() -> Space:
    """Return the space that both go through."""
    space = read_space(SPACE)
    return replace(space, axes={**space.axes, **NARROWED})


def swept(space: Space, threads: int | None) -> Explored:
    """Look at every configuration."""
    questions = [replace(item, count=_RANKED) if isinstance(item, Best) else item for item in space.questions]
    return explore(replace(space, questions=tuple(questions)), threads=threads)


def distinct_keys(explored: Explored, name: str) -> NDArray[np.float64]:
    """Return the keys of an answer in their order, once each."""
    rows = [tuple(item.keys.values()) for item in configurations_of(explored.answers[name])]
    return np.asarray(sorted({tuple(float(f"{key:.13g}") for key in row) for row in rows}))


def compare(space: Space, everything: Explored, bounded: Explored) -> list[str]:
    """Return a line for each question. Raises AssertionError where the answers differ."""
    lines = []
    for question in space.questions:
        expected, keys = (distinct_keys(explored, question.name) for explored in (everything, bounded))
        among = min(len(expected), len(keys)) if isinstance(question, Best) else len(expected)
        assert among > 1
        np.testing.assert_allclose(keys[:among], expected[:among], rtol=_ROUNDED)
        assert isinstance(question, Best) or len(keys) == among
        lines.append(f"{question.name}: {among} of {len(keys)} distinct keys compared and equal")
    return lines


def timed(work: Any) -> tuple[Explored, float, float]:
    """Return an answer with the seconds of the clock and of the processors that it took."""
    clock, processors = time.perf_counter(), time.process_time()
    return work(), time.perf_counter() - clock, time.process_time() - processors


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what both took, and that they agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=None)
    threads = parser.parse_args(arguments).threads
    space = narrowed()
    bounded, *times = timed(lambda: explore(space, method="bounds"))
    boxes = sum(part.bounded for part in bounded.bounds)
    print(f"{bounded.size:,} configurations: {boxes:,} boxes, {times[0]:.1f} s, {times[1]:.1f} s of processors",
          flush=True)
    everything, *times = timed(lambda: swept(space, threads))
    print(f"sweep: {everything.done:,} done, {times[0]:.1f} s, {times[1]:.1f} s of processors")
    print(*compare(space, everything, bounded), sep="\n")


if __name__ == "__main__":
    main()
