"""Snapshots of PyTorch's memory: sums by hand, and files that try to be more than data."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from shardmath.cli.main import exit_code
from shardmath.commands.snapshot import snapshot
from shardmath.errors import InputError
from shardmath.files.pickled import read_plain
from shardmath.schemas import schema

MIB = 2**20


def frame(line: int) -> dict[str, Any]:
    return {"filename": "/home/user/train.py", "line": line, "name": "step"}


def block(size: int, requested: int, state: str, address: int = 0) -> dict[str, Any]:
    return {"size": size, "requested_size": requested, "address": address, "state": state, "frames": []}


def segment(kind: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"device": 0, "address": 0, "total_size": sum(item["size"] for item in blocks), "stream": 0,
            "segment_type": kind, "blocks": list(blocks)}


def entry(action: str, address: int, size: int, line: int = 0) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": [frame(line)] if line else []}


#: One whole history: 30 MiB stay, 12 MiB came and went, 1000 bytes stay, and a segment of 40 MiB is cached.
TAKEN = {
    "segments": [
        segment("large", block(30 * MIB, 30 * MIB - 100, "active_allocated", 1), block(4 * MIB, 0, "inactive")),
        segment("large", block(40 * MIB, 0, "inactive")),
        segment("small", block(1024, 1000, "active_allocated", 3), block(2 * MIB - 1024, 0, "inactive")),
    ],
    "device_traces": [[
        entry("segment_alloc", 1, 34 * MIB), entry("alloc", 1, 30 * MIB - 100, 7),
        entry("segment_alloc", 2, 40 * MIB), entry("alloc", 2, 12 * MIB, 9),
        entry("segment_alloc", 3, 2 * MIB), entry("alloc", 3, 1000, 9),
        entry("free_requested", 2, 12 * MIB), entry("free_completed", 2, 12 * MIB),
    ]],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps(TAKEN))
    return path


def test_memory_is_added_up_by_state(file: Path) -> None:
    taken = snapshot(file)
    assert taken.reserved_bytes == 76 * MIB
    assert taken.allocated_bytes == 30 * MIB + 1024
    assert taken.rounding_bytes == 124
    assert taken.split_bytes == 6 * MIB - 1024
    assert taken.cached_bytes == 40 * MIB
    assert taken.small_pool_bytes == 2 * MIB - 1024
    assert taken.largest_segments == (40 * MIB, 34 * MIB, 2 * MIB)
    assert taken.reserved_bytes == sum((taken.allocated_bytes, taken.awaiting_bytes, taken.split_bytes,
                                        taken.cached_bytes))


def test_the_peak_has_its_stacks(file: Path) -> None:
    taken = snapshot(file)
    assert taken.is_whole
    assert taken.peak_allocated_bytes == 42 * MIB - 100 + 1000
    assert taken.peak_block_bytes == 42 * MIB + 1024
    assert taken.peak_reserved_bytes == 76 * MIB
    assert [(holder.stack, holder.bytes, holder.tensors) for holder in taken.holders] == [
        (("train.py:7 step",), 30 * MIB - 100, 1), (("train.py:9 step",), 12 * MIB + 1000, 2)]


def test_frames_of_python_and_pools_of_other_streams(tmp_path: Path) -> None:
    """The recorder's own frames stand above all; what is free in a stream's pool cannot serve another."""
    inside = {"filename": "??", "line": 0, "name": "torch::unwind::unwind()"}
    made = {**entry("alloc", 1, 512), "frames": [inside, frame(5), inside]}
    native = {**entry("alloc", 513, 512), "frames": [inside, {**inside, "name": "at::native::mm"}]}
    alone = {**entry("alloc", 1025, 512), "frames": [inside]}
    other = {**segment("large", block(20 * MIB, 0, "inactive")), "stream": 7}
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps({"segments": [*TAKEN["segments"], other],
                                   "device_traces": [[made, native, alone]]}))
    taken = snapshot(path)
    stacks = {holder.stack for holder in taken.holders}
    assert stacks >= {("train.py:5 step",), ("??:0 at::native::mm",), ("??:0 torch::unwind::unwind()",)}
    assert (taken.other_streams_bytes, taken.cached_bytes) == (20 * MIB, 60 * MIB)


def test_options_of_the_allocator(tmp_path: Path) -> None:
    path = tmp_path / "memory.pickle"
    for text, is_replayed in (("expandable_segments:True", True), ("backend:cudaMallocAsync", False)):
        path.write_bytes(pickle.dumps({**TAKEN, "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": text}}))
        taken = snapshot(path)
        assert (taken.replayed is not None, taken.replay_unknown == "") == (is_replayed, is_replayed)


def test_a_history_that_began_late_is_not_called_whole(tmp_path: Path) -> None:
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps({**TAKEN, "device_traces": [TAKEN["device_traces"][0][2:]]}))
    late = snapshot(path)
    assert not late.is_whole
    assert (late.peak_allocated_bytes, late.peak_reserved_bytes) == (42 * MIB - 100 + 1000, 76 * MIB)
    path.write_bytes(pickle.dumps({"segments": TAKEN["segments"], "device_traces": []}))
    assert (snapshot(path).is_whole, snapshot(path).events) == (False, 0)


def test_the_command_prints_the_sums(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["snapshot", str(file)]) == 0
    out = capsys.readouterr().out
    assert "the whole history" in out
    assert "train.py:7 step" in out
    assert exit_code(["snapshot", str(file), "--json"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), schema("snapshot"))
    assert exit_code(["snapshot", str(file), "--device", "3"]) == 2


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_comes_back_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    shared = {"name": "é" * 300, "line": 70_000}
    data = {"a": [shared, shared], "b": (1, -5, 2**63, 300, 1.5), "c": [None, True, False, (), (1,), (1, 2, 3)],
            "d": list(range(3000)), "e": {}}
    path = tmp_path / "data.pickle"
    path.write_bytes(pickle.dumps(data, protocol))
    assert read_plain("file", path) == data


class Canary:
    """Would make a file if a pickle could call something."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("canary",)


HOSTILE = {
    "call": pickle.dumps(Canary()), "call in old text": b"cos\nsystem\n(S'touch canary'\ntR.",
    "class": pickle.dumps(Path), "nothing": b"", "no end": pickle.dumps(TAKEN)[:-1], "only a mark": b"(.",
    "huge memo": b"\x80\x02]r\xff\xff\xff\xff.", "long text": b"\x80\x04\x8d" + b"\xff" * 8 + b".",
    "long integer": b"\x80\x02\x8a\xff" + b"\xff" * 255 + b".", "odd pairs": b"\x80\x02}(Ku.",
    "key": b"\x80\x02}]K\x01s.",
    "itself": b"\x80\x02]q\x00h\x00a.", "deep": b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".", "zeros": bytes(999),
    "list": pickle.dumps([1]), "text": pickle.dumps("x"), "segments": pickle.dumps({"segments": [3]}),
    "sizes": pickle.dumps({"segments": [segment("large", block(-1, 0, "inactive"))]}),
    "state": pickle.dumps({"segments": [segment("large", block(1, 0, "gone"))]}),
    "sum": pickle.dumps({"segments": [{**segment("large", block(1, 0, "inactive")), "total_size": 2}]}),
    "trace": pickle.dumps({"segments": [], "device_traces": [[{"action": 1}]]}),
    "frames": pickle.dumps({"segments": [], "device_traces": [[{**entry("alloc", 1, 1), "frames": [[]]}]]}),
}


@pytest.mark.parametrize("content", HOSTILE)
def test_what_is_no_snapshot_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "memory.pickle"
    path.write_bytes(HOSTILE[content])
    with pytest.raises(InputError) as refused:
        snapshot(path)
    assert str(refused.value).isprintable()
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(("content", "words"), [
    (b"\x1f\x8b\x08", "gzip packed it"), (b"PK\x03\x04", "zip archive"),
    (b"SQLite format 3\0", "_dump_snapshot_sqlite"), (pickle.dumps([TAKEN["segments"]]), "memory_snapshot()"),
    (pickle.dumps(Canary()), "STACK_GLOBAL"),
])
def test_what_else_people_have_of_a_snapshot_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "memory.pickle"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(words)):
        snapshot(path)


def test_a_snapshot_of_an_older_pytorch_names_the_one_that_is_needed(tmp_path: Path) -> None:
    """PyTorch 2.0.1 keeps the size that was asked for in a history of the block; 1.13 writes a list without a trace."""
    old = {**TAKEN, "segments": [
        {**part, "blocks": [{name: value for name, value in item.items() if name != "requested_size"}
                            | {"history": [{"addr": 1, "real_size": item["requested_size"]}]}
                            for item in part["blocks"]]}
        for part in TAKEN["segments"]]}
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps(old))
    with pytest.raises(InputError, match=r"requested_size = .*: PyTorch writes it from 2\.1 on"):
        snapshot(path)
    path.write_bytes(pickle.dumps(old["segments"]))
    with pytest.raises(InputError, match=r"up to PyTorch 1\.13, has no trace; PyTorch has _dump_snapshot from 2\.1 on"):
        snapshot(path)


def test_a_field_of_the_wrong_kind_names_no_release(tmp_path: Path) -> None:
    wrong = {**TAKEN, "segments": [segment("large", {**block(1024, 0, "active_allocated"), "requested_size": "1"})]}
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps(wrong))
    with pytest.raises(InputError, match=r"must be an integer of at least 0$"):
        snapshot(path)
