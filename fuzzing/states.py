"""Readers of what the program keeps itself: states of sweeps, and the cache."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from fuzzing.outcome import Finding, outcome
from fuzzing.reader import Reader, in_file

_SPACE = {
    "model": "llama-3.1-8b", "gpu": "a100-40gb", "fixed": {"global_batch_size": 64, "num_gpus": 32},
    "axes": {"seq_length": [4096, 8192], "tensor_parallel": [1, 2, 4], "pipeline_parallel": [1, 2],
             "recompute": ["none", "full"]},
    "questions": {
        "best": {"best": ["peak"], "count": 3, "per": ["recompute"], "among": "legal"},
        "front": {"front": ["peak", "-seq_length"], "among": "legal"},
        "sizes": {"histogram": "peak", "edges": [2**34, 2**35], "among": "legal"},
    },
}
#: An input that is the file itself; others are changes to a whole one, with the right digest.
_AS_IT_IS = b"P"
#: Bytes of an array that is made anew: dimensions that are small each may not be so together.
_LARGEST = 2**20


@cache
def _nests() -> tuple[Any, ...]:
    from shardmath.search.nests.compiled import CompiledNest
    from shardmath.search.spaces import space_of

    space = space_of(_SPACE)
    return tuple(CompiledNest(part, space.questions) for part in space.parts())


@cache
def _state(stretches: int) -> bytes:
    """Return the file of a state in which so many shards are done."""
    from fuzzing.outcome import scratch_folder
    from shardmath.search.nests.checkpoint import Checkpoint
    from shardmath.search.nests.running import Run, run, swept

    (nest,) = _nests()
    state = Run(nest.empty())
    if stretches == nest.shards:
        state = run(nest, threads=1)
    else:
        state.add(0, stretches, swept(nest, 0, stretches, state.answer)[0])
    path = Path(scratch_folder()) / "state"
    Checkpoint(path, [nest]).save([state])
    content = path.read_bytes()
    path.unlink()
    path.parent.rmdir()
    return content


def _checkpoint(data: bytes, folder: str) -> str:
    from shardmath.commands.explore.answer import explored
    from shardmath.search.nests.checkpoint import Checkpoint
    from shardmath.search.nests.running import run
    from shardmath.search.spaces import space_of

    content = data[1:] if data.startswith(_AS_IT_IS) else _changed(data)
    path = in_file(content, folder, "state")

    def read() -> None:
        (nest,) = _nests()
        (state,) = Checkpoint(Path(path), [nest]).load()
        json.dumps(explored([nest], [run(nest, state, threads=1)], space_of(_SPACE).questions, None).to_dict())

    return outcome(read)


def _changed(data: bytes) -> bytes:
    """Return a state with changes, one a line: ``header.key=json``, or ``name=kind:shape:number`` for an array."""
    from io import BytesIO

    import numpy as np

    from shardmath.files.arrays import write_arrays

    arrays = dict(_whole_arrays())
    header = json.loads(str(arrays["header"]))
    for line in data.decode("utf-8", "replace").split("\n")[:20]:
        name, equals, value = line.partition("=")
        try:
            if not equals:
                arrays.pop(name, None)
            elif name.startswith("header."):
                header[name.removeprefix("header.")] = json.loads(value)
            else:
                kind, shape, number = value.split(":")
                sizes = tuple(min(9, int(size)) for size in shape.split(",") if size)
                if prod(sizes) * np.dtype(kind).itemsize <= _LARGEST:
                    arrays[name] = np.full(sizes, number).astype(kind)
        except (ValueError, TypeError, RecursionError, OverflowError, SyntaxError):
            continue
    if "header" in arrays:
        arrays["header"] = np.array(json.dumps(header))
    buffer = BytesIO()
    try:
        write_arrays(buffer, arrays)
    except ValueError:  # of objects
        return b""
    return buffer.getvalue()


@cache
def _whole_arrays() -> dict[str, Any]:
    from fuzzing.outcome import scratch_folder
    from shardmath.files.arrays import read_arrays

    folder = scratch_folder()
    arrays = read_arrays(Path(in_file(_state(1), folder, "state")))
    os.unlink(f"{folder}/state")
    os.rmdir(folder)
    return arrays


def _states() -> Sequence[bytes]:
    changes = (b"header.done=[[[0, 1]]]\nheader.evaluated=[5]", b"header.written=\"x.parquet\"", b"0.broken=int64:12:3",
               b"0.verdicts=int64:3:1\n0.0.1=int64:2,3:7\n0.1.2=int64:1:4", b"0.1.0=float64:9,2:1\n0.1.1=int64:9:3",
               b"header.done=[[]]", b"0.2.0=float64:2:9\n0.2.1=int64:3:1")
    return [*(_AS_IT_IS + _state(shards) for shards in (1, 2)), *changes]


def _kept(data: bytes, folder: str) -> str:
    """Puts an input where something was kept: it is found as it was, or not at all."""
    from shardmath.files import cached

    kind, name = "fuzzed", "kept.py"
    value = None
    path = cached._path(kind, name)
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = cached.kept(kind, name)
    if value is not None and data != cached._seal(kind, name, value) + value:
        raise Finding("something else was found than was kept")
    return "refused" if value is None else "answered"


def _files_kept() -> Sequence[bytes]:
    from shardmath.files import cached

    content = b"VALUE = 42\n"
    return [cached._seal("fuzzed", "kept.py", content) + content, cached._seal("fuzzed", "other.py", content) + content,
            cached._seal("fuzzed", "kept.py", b"") + b"", content]


READERS = (
    Reader("checkpoint", _checkpoint, _states, lambda: (b"header.", b"0.", b"int64", b"float64", b"[[0, 2]]",
                                                        b"object")),
    Reader("cache", _kept, _files_kept),
)
