"""Segments, blocks and trace of a snapshot, with types checked (``_snapshot`` in PyTorch's torch/cuda/memory.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shardmath.errors import InputError
from shardmath.files.pickled import read_plain

STATES = ("active_allocated", "active_awaiting_free", "active_pending_free", "inactive")
#: Frames of a stack that are read, and parts of a snapshot: shared lists could be read again and again.
DEEPEST, MOST = 200, 10**7
#: First release of PyTorch that has a field, of those that older ones have not (torch/cuda/memory.py: 2.0.1 keeps the
#: size in a ``history`` of the block), and that has ``_dump_snapshot``.
SINCE = {"requested_size": "2.1"}
WRITTEN_SINCE = "2.1"
#: Parts of names of frames between an allocation and its cause: the first three as in ``omit_functions`` of PyTorch's
#: torch/cuda/_memory_viz.py.
_RECORDING = ("unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp", "CUDACachingAllocator::")


@dataclass(frozen=True)
class Part:
    """Dictionary of a snapshot with its place, for errors."""

    field: str
    values: Mapping[str, Any]

    def number(self, name: str) -> int:
        """Return a size, an address or a count. Raises InputError for anything but an integer of at least 0."""
        value = self.values.get(name)
        if type(value) is not int or not 0 <= value < 2**63:
            raise self._refused(name, "must be an integer of at least 0")
        return value

    def word(self, name: str) -> str:
        """Return a text. Raises InputError for other values."""
        value = self.values.get(name)
        if type(value) is not str:
            raise self._refused(name, "must be text")
        return value

    def _refused(self, name: str, rule: str) -> InputError:
        """Return the error of a field, with the PyTorch that it needs where older ones have it not."""
        if name in SINCE and name not in self.values:
            rule += f": PyTorch writes it from {SINCE[name]} on"
        return InputError(f"{self.field}.{name}", self.values.get(name), rule)

    def parts(self, name: str) -> Iterator[Part]:
        """Yield the dictionaries of a list."""
        return parts(f"{self.field}.{name}", self.values.get(name))

    def stack(self) -> tuple[str, ...]:
        """Return the frames in words, innermost first: those of Python alone, where the stack has any.

        Without them frames of the recording itself and of the allocator are left out, if there are others.
        """
        frames = self.values.get("frames", [])
        if isinstance(frames, list):
            frames = frames[:DEEPEST]
        listed = list(parts(f"{self.field}.frames", frames))
        of_python = [frame for frame in listed if frame.word("filename").endswith(".py")]
        asking = [frame for frame in listed if not any(name in frame.word("name") for name in _RECORDING)]
        return tuple(
            f"{frame.word('filename').rpartition('/')[2]}:{frame.number('line')} {frame.word('name')}"
            for frame in of_python or asking or listed
        )


def parts(field: str, listed: object) -> Iterator[Part]:
    """Yield the dictionaries of a list, each with its place. Raises InputError for other values and for long lists."""
    if not isinstance(listed, list):
        raise InputError(field, listed, "must be a list")
    if len(listed) > MOST:
        raise InputError(field, len(listed), f"must have at most {MOST} parts")
    for place, values in enumerate(listed):
        if not isinstance(values, dict):
            raise InputError(f"{field}[{place}]", values, "must be a dictionary")
        yield Part(f"{field}[{place}]", values)


def read_snapshot(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the pickled dictionary of a snapshot.

    Raises InputError for any other file.
    """
    values = read_plain("file", path)
    if not isinstance(values, dict) or not isinstance(values.get("segments"), list):
        rule = "must be what torch.cuda.memory._dump_snapshot writes"
        if isinstance(values, list):
            rule += (": a list, such as memory_snapshot() returns and _snapshot() up to PyTorch 1.13, has no trace;"
                     f" PyTorch has _dump_snapshot from {WRITTEN_SINCE} on")
        raise InputError("file", os.fspath(path), rule)
    return values
