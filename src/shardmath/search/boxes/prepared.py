"""Programs and tables of a part, as arrays: all that the machine of bounds takes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardmath.search.boxes.points import Points
from shardmath.search.boxes.stages import Stages

Integers = NDArray[np.int64]
_Made = TypeVar("_Made", Points, Stages)
#: Parts of a kept file are compressed little: they are read more often than written.
_LEVEL = 1


@dataclass(frozen=True)
class Prepared:
    """Arrays of a part. ``order`` are its axes as they are cut.

    ``first`` are numbers of boxes with first answers, whose last axis of the order is free, and ``counting`` has 1 for
    each question to which one of a box may be an answer. ``whole`` says which keys are whole numbers.

    For each axis: its places that are ``live``, which all others here count alone, ``idle`` pairs of another axis and a
    place at which only its first place counts, the tables that are ``checked``, and its ``stages``. ``low``, ``high``
    and ``legal`` are the tables, one behind the other; see ``blocks.run`` and ``blocks.children``. ``points`` has the
    keys of single configurations.
    """

    order: Integers
    first: Integers
    counting: NDArray[np.int8]
    whole: NDArray[np.int8]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    legal: NDArray[np.int8]
    starts: Integers
    firsts: Integers
    steps: Integers
    members: Integers
    points: Points
    live: tuple[Integers, ...]
    idle: tuple[Integers, ...]
    checked: tuple[Integers, ...]
    stages: tuple[Stages, ...]

    def written(self) -> bytes:
        """Return all arrays as bytes, which ``read`` takes."""
        arrays = {name: getattr(self, name) for name in _SHARED}
        arrays |= {f"{name} of points": np.asarray(getattr(self.points, name)) for name in _OF_POINTS}
        for axis, stages in enumerate(self.stages):
            arrays |= {f"live {axis}": self.live[axis], f"idle {axis}": self.idle[axis]}
            arrays |= {f"checked {axis}": self.checked[axis]}
            arrays |= {f"{name} {axis}": np.asarray(getattr(stages, name)) for name in _OF_STAGES}
        packed = {name: zlib.compress(np.ascontiguousarray(array).data, _LEVEL) for name, array in arrays.items()}
        head = json.dumps([[name, array.dtype.name, array.shape, len(packed[name])] for name, array in arrays.items()])
        return b"\n".join((head.encode(), b"".join(packed.values())))

    @classmethod
    def read(cls, content: bytes) -> Prepared:
        """Return the arrays that ``written`` wrote."""
        head, _, packed = content.partition(b"\n")
        arrays, start = dict[str, NDArray[Any]](), 0
        for name, kind, shape, length in json.loads(head):
            size = max(1, np.dtype(kind).itemsize * prod(shape))  # room at once: a growing one takes twice as much
            content = zlib.decompress(packed[start: start + length], bufsize=size)
            arrays[name] = np.frombuffer(content, kind).reshape(shape)
            start += length
        axes = range(sum(name.startswith("idle ") for name in arrays))
        return cls(
            **{name: arrays[name] for name in _SHARED},
            points=_made(Points, {name: arrays[f"{name} of points"] for name in _OF_POINTS}),
            live=tuple(arrays[f"live {axis}"] for axis in axes),
            idle=tuple(arrays[f"idle {axis}"] for axis in axes),
            checked=tuple(arrays[f"checked {axis}"] for axis in axes),
            stages=tuple(_made(Stages, {name: arrays[f"{name} {axis}"] for name in _OF_STAGES}) for axis in axes),
        )


def _made(kind: type[_Made], arrays: Mapping[str, Any]) -> _Made:
    values: dict[str, Any] = {name: array if array.ndim else int(array) for name, array in arrays.items()}
    return kind(**values)


_OF_POINTS: Sequence[str] = tuple(item.name for item in fields(Points))
_OF_STAGES: Sequence[str] = tuple(item.name for item in fields(Stages))
_SHARED: Sequence[str] = tuple(item.name for item in fields(Prepared))[:-5]
