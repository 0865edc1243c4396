"""The state of a sweep as one file: replaced whole every few seconds, refused for another space.

It has the exact numbers (NumPy arrays), and which stretches of which part are done. Rows are not in it: those of every
stretch that it calls done are in files beside it, which were there before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.errors import InputError
from shardmath.files.arrays import DamagedError, read_arrays, write_arrays
from shardmath.files.reading import json_object
from shardmath.files.writing import whole_file
from shardmath.search.nests.answers import NOBODY, Answer, BestAnswer, Found, FrontAnswer
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.running import Run

#: Seconds between two states.
SECONDS = 3.0
#: Bytes of all arrays together, far more than answers have.
_LARGEST = 2**29
_FORMAT = "shardmath checkpoint 2"


def key_of(nests: Sequence[Nest]) -> str:
    """Return the digest of a state's owner: the formulas, and the value of every symbol, of all parts."""
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
            write_arrays(file, arrays, compressed=True)  # type: ignore[arg-type]
        self._last = time.monotonic()

    def save_now_and_then(self, runs: Sequence[Run]) -> None:
        """Replace the file if it is some seconds old."""
        if time.monotonic() - self._last >= SECONDS:
            self.save(runs)

    def load(self) -> list[Run]:
        """Return the state in the file. Raises InputError if it is none, or that of another space."""
        try:
            arrays = read_arrays(self.path, _LARGEST)
            header = json_object("checkpoint", str(self.path), str(arrays["header"]), "a header")
            known = header["format"] == _FORMAT
        except OSError as error:
            rule = f"must be a file that can be read: {error.strerror or error}"
            raise InputError("checkpoint", str(self.path), rule) from None
        except (DamagedError, ValueError, KeyError, TypeError, RecursionError):
            known = False
        if not known:
            raise self._not_a_checkpoint()
        if header["key"] != key_of(self.nests):
            rule = "must be that of the same space, questions, rows and version: this one is of others"
            raise InputError("checkpoint", str(self.path), rule)
        try:
            runs = [
                Run(_restored(nest, arrays, part, evaluated), _stretches(done, nest.shards))
                for part, (nest, done, evaluated) in enumerate(
                    zip(self.nests, header["done"], header["evaluated"], strict=True))
            ]
            written = header["written"]
            if not (written is None or isinstance(written, str)):
                raise DamagedError
        except (ValueError, KeyError, TypeError):
            raise self._not_a_checkpoint() from None
        self.written = written
        return runs

    def _not_a_checkpoint(self) -> InputError:
        return InputError("checkpoint", str(self.path), "must be a whole checkpoint of this version of shardmath")


def _arrays(answer: Answer) -> dict[str, NDArray[np.generic]]:
    arrays: dict[str, NDArray[np.generic]] = {"broken": answer.broken, "verdicts": answer.verdicts}
    for number, item in enumerate(answer.questions):
        arrays |= {f"{number}.{place}": array for place, array in enumerate(item.arrays)}
    return arrays


def _restored(nest: Nest, arrays: dict[str, NDArray[Any]], part: int, evaluated: object) -> Answer:
    """Return the answer in a file. Raises DamagedError for arrays that compiled loops cannot take."""
    empty = nest.empty()
    questions = tuple(
        _alike(item, [arrays[f"{part}.{number}.{place}"] for place in range(len(item.arrays))], nest.size)
        for number, item in enumerate(empty.questions)
    )
    broken, verdicts = arrays[f"{part}.broken"], arrays[f"{part}.verdicts"]
    _refuse_unlike(empty.broken, broken)
    _refuse_unlike(empty.verdicts, verdicts)
    return Answer(broken, verdicts, questions, _counted(evaluated, nest.size))


def _alike(empty: Found, arrays: Sequence[NDArray[Any]], size_of_space: int) -> Found:
    if isinstance(empty, FrontAnswer):
        keys, numbers, size = arrays
        _refuse_unlike(empty.size, size)
        if not 0 <= size[0] <= len(numbers) or len(keys) != len(numbers) or len(numbers) < len(empty.numbers):
            raise DamagedError
        _refuse_unlike(empty.keys, keys[: len(empty.keys)])
        _refuse_unlike(empty.numbers, numbers[: len(empty.numbers)])
        _refuse_nobodies(numbers[: size[0]], size_of_space)
        return FrontAnswer(keys, numbers, size)
    for own, other in zip(empty.arrays, arrays, strict=True):
        _refuse_unlike(own, other)
    if isinstance(empty, BestAnswer):
        _refuse_nobodies(arrays[1][arrays[1] != NOBODY], size_of_space)
    return type(empty)(*arrays)


def _refuse_nobodies(numbers: NDArray[Any], size: int) -> None:
    if ((numbers < 0) | (numbers >= size)).any():
        raise DamagedError


def _refuse_unlike(own: NDArray[Any], other: NDArray[Any]) -> None:
    if (own.shape, own.dtype) != (other.shape, other.dtype):
        raise DamagedError


def _counted(count: object, most: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= most:
        raise DamagedError
    return count


def _stretches(done: Sequence[Sequence[object]], shards: int) -> list[tuple[int, int]]:
    """Return stretches of shards. Raises DamagedError unless they are ascending and apart."""
    stretches, last = [], -1
    for start, stop in done:
        begin, end = _counted(start, shards), _counted(stop, shards)
        if not last < begin < end:
            raise DamagedError
        stretches.append((begin, end))
        last = end
    return stretches
