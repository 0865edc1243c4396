"""The model of the allocator beside PyTorch on a GPU: traces of training steps that were recorded on an H100.

They are snapshots of ``validation/programs/on_gpu.py`` with three frames of each stack.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from shardmath.allocator.trace import replay
from shardmath.commands.snapshot.read import parts, read_snapshot
from shardmath.commands.snapshot.run import snapshot
from shardmath.commands.snapshot.walk import Walk

FOLDER = Path(__file__).resolve().parent / "data" / "snapshots"
TRACES = sorted(path.name.removesuffix(".pickle.xz") for path in FOLDER.glob("*.xz"))
#: Of equal free blocks PyTorch takes that with the lowest address: here the driver did not give ascending ones.
ORDER_MATTERS = {"qwen2.5-3b_full", "qwen3-4b_full"}


def unpacked(name: str, folder: Path) -> Path:
    path = folder / "memory.pickle"
    path.write_bytes(lzma.decompress((FOLDER / f"{name}.pickle.xz").read_bytes()))
    return path


@pytest.mark.parametrize("name", TRACES)
def test_reserved_memory_is_that_of_the_gpu(name: str, tmp_path: Path) -> None:
    answer = snapshot(unpacked(name, tmp_path))
    assert answer.is_whole
    assert answer.replayed is not None
    assert answer.replayed.reserved_bytes == answer.peak_reserved_bytes


@pytest.mark.parametrize("name", TRACES)
def test_every_segment_is_made_when_the_gpu_made_it(name: str, tmp_path: Path) -> None:
    values = read_snapshot(unpacked(name, tmp_path))
    trace = list(parts("device_traces[0]", values["device_traces"][0]))
    walk = Walk(list(parts("segments", values["segments"])), trace)
    addresses = walk.addresses()
    made = [(entry.number("addr"), entry.number("size")) for entry in trace if entry.word("action") == "segment_alloc"]
    answer = replay(list(walk.events()), addresses=addresses)
    assert len(addresses) == 0, "all segments of the trace were asked for, in its order and with its sizes"
    left = {address: sum(block.size for block in blocks) for address, blocks in answer.allocator.blocks().items()}
    assert left == {entry.number("address"): entry.number("total_size")
                    for entry in parts("segments", values["segments"])}
    assert set(left.items()) <= set(made)


@pytest.mark.parametrize("name", TRACES)
def test_which_of_equal_blocks_is_taken_depends_on_the_addresses_of_the_driver(name: str, tmp_path: Path) -> None:
    values = read_snapshot(unpacked(name, tmp_path))
    walk = Walk(list(parts("segments", values["segments"])), list(parts("trace", values["device_traces"][0])))
    ascending = replay(list(walk.events())).reserved_peak
    assert (ascending != walk.reserved_peak) == (name in ORDER_MATTERS)
    assert abs(ascending / walk.reserved_peak - 1) < 0.04
