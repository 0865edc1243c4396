"""The state of a sweep as one file: replaced whole every few seconds, refused for another space.

It has the exact numbers (NumPy arrays), and which stretches of which part are done. Rows are not in it: those of every
stretch that it calls done are in files beside it, which were there before.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shardmath.errors import InputError
from shardmath.reports.files import whole_file
from shardmath.sweeps.answers import Answer
from shardmath.sweeps.nests import Nest
from shardmath.sweeps.running import Run

#: Seconds between two states.
SECONDS = 3.0
_FORMAT = "shardmath checkpoint 1"


def key_of(nests: Sequence[Nest]) -> str:
    """What a state belongs to: the formulas, and the value of every symbol, of all parts."""
    return hashlib.sha256(json.dumps([nest.key for nest in nests]).encode()).hexdigest()


@dataclass
class Checkpoint:
    """A file for the state of the parts of one space; ``written`` is the table whose rows were all written."""

    path: Path
    nests: Sequence[Nest]
    written: str | None = None
    _last: float = field(default_factory=time.monotonic)

    @property
    def rows(self) -> Path:
        """The folder of the rows that are not in a table yet."""
        return self.path.with_name(f"{self.path.name}.rows")

    def save(self, runs: Sequence[Run]) -> None:
        """Replace the file by this state."""
        header = {
            "format": _FORMAT, "key": key_of(self.nests), "written": self.written,
            "done": [run.done for run in runs], "evaluated": [run.answer.evaluated for run in runs],
        }
        arrays: dict[str, NDArray[np.generic]] = {"header": np.array(json.dumps(header))}
        for part, run in enumerate(runs):
            arrays |= {f"{part}.{name}": array for name, array in _arrays(run.answer).items()}
        with whole_file("checkpoint", str(self.path), "wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        self._last = time.monotonic()

    def save_now_and_then(self, runs: Sequence[Run]) -> None:
        """Replace the file if it is some seconds old."""
        if time.monotonic() - self._last >= SECONDS:
            self.save(runs)

    def load(self) -> list[Run]:
        """The state in the file. Raises InputError if it is none, or that of another space."""
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            header = json.loads(str(arrays["header"]))
            known = header["format"] == _FORMAT
        except OSError as error:
            rule = f"must be a file that can be read: {error.strerror or error}"
            raise InputError("checkpoint", str(self.path), rule) from None
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
            known = False
        if not known:
            raise InputError("checkpoint", str(self.path), "must be a checkpoint of this version of shardmath")
        if header["key"] != key_of(self.nests):
            rule = "must be that of the same space, questions, rows and version: this one is of others"
            raise InputError("checkpoint", str(self.path), rule)
        self.written = header["written"]
        return [
            Run(_restored(nest.empty(), arrays, part, evaluated), [(start, stop) for start, stop in done])
            for part, (nest, done, evaluated) in enumerate(
                zip(self.nests, header["done"], header["evaluated"], strict=True))
        ]


def _arrays(answer: Answer) -> dict[str, NDArray[np.generic]]:
    found: dict[str, NDArray[np.generic]] = {"broken": answer.broken, "verdicts": answer.verdicts}
    for number, item in enumerate(answer.questions):
        found |= {f"{number}.{place}": array for place, array in enumerate(item.arrays)}
    return found


def _restored(empty: Answer, arrays: dict[str, NDArray[np.generic]], part: int, evaluated: int) -> Answer:
    questions = tuple(
        type(item)(*(arrays[f"{part}.{number}.{place}"] for place in range(len(item.arrays))))  # type: ignore[arg-type]
        for number, item in enumerate(empty.questions)
    )
    return Answer(arrays[f"{part}.broken"], arrays[f"{part}.verdicts"], questions, evaluated)  # type: ignore[arg-type]
