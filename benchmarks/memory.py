"""The largest resident set of every contender: a fresh process each, which loads columns and evaluates them once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.contenders import Contender, converted, family
from benchmarks.data import Batch, job
from benchmarks.startup import run_fresh

#: In place of a family: a process that loads the columns and evaluates nothing.
_NOTHING = "nothing"


def peaks(rivals: Sequence[Contender], batch: Batch) -> tuple[dict[tuple[str, str, int], float], float]:
    """MiB by contender for ``batch``; and those of a process that only loads it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "columns.npz"
        columns: dict[str, Any] = dict(batch.columns)
        np.savez(path, **columns)
        command = ("-m", "benchmarks.memory", str(path))
        peak_bytes = {
            rival.key: run_fresh((*command, rival.family, *map(str, rival.key), str(rival.sample or len(batch))))[-1]
            for rival in rivals
        }
        return peak_bytes, run_fresh((*command, _NOTHING))[-1]


def main(arguments: Sequence[str]) -> None:
    """Run the fresh process: its arguments are the file of columns, family, name, work, threads and rows."""
    path, chosen, *key = arguments
    measured = job()
    with np.load(path) as stored:
        columns = dict(stored)
    if chosen == _NOTHING:
        return
    *wanted, rows = key
    rival = next(rival for rival in family(chosen, measured) if [*map(str, rival.key)] == wanted)
    rival.run(converted({name: values[: int(rows)] for name, values in columns.items()}, rival.kind))


if __name__ == "__main__":
    main(sys.argv[1:])
