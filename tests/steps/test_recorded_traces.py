"""The model of the allocator beside PyTorch on a GPU: traces of training steps that were recorded on an H100.

They are snapshots of ``validation/programs/on_gpu.py`` and ``megatron_on_gpu.py`` with three frames of each stack.
"""

from __future__ import annotations

import csv
import lzma
from functools import cached_property
from pathlib import Path

import pytest

from shardmath.allocator.trace import Replay, replay
from shardmath.commands.snapshot.read import Part, parts, read_snapshot
from shardmath.commands.snapshot.run import snapshot
from shardmath.commands.snapshot.walk import Walk

DATA = Path(__file__).resolve().parents[1] / "data"
FOLDER = DATA / "snapshots"
TRACES = sorted(path.name.removesuffix(".pickle.xz") for path in FOLDER.glob("*.xz"))
#: Of equal free blocks PyTorch takes that with the lowest address: here the driver did not give ascending ones.
ORDER_MATTERS = {"qwen2.5-3b_full", "qwen3-4b_full"}
HUGGINGFACE, ONE_H100 = "huggingface_h100.csv", "one_h100.csv"
ONE = {"microbatches": "1", "attention": "sdpa"}
MEGATRON = {"program": "megatron-core", "attention": "flash"}
#: Table of each trace's run, and what its row has: tokens, sequences and recompute, behind the model.
RUNS: dict[str, tuple[str, dict[str, str]]] = {
    name: (table, {**ONE, "model": model, "seq_length": tokens, "micro_batch_size": sequences, "recompute": recompute,
                   **more})
    for name, table, model, tokens, sequences, recompute, more in (
        ("llama-3.2-1b_none", HUGGINGFACE, "llama-3.2-1b", "4096", "1", "none", {}),
        ("llama-3.2-1b_full", HUGGINGFACE, "llama-3.2-1b", "4096", "2", "full", {}),
        ("llama-3.2-1b_eager_full", HUGGINGFACE, "llama-3.2-1b", "2048", "2", "full", {"attention": "eager"}),
        ("qwen2.5-3b_full", HUGGINGFACE, "qwen2.5-3b", "4096", "1", "full", {}),
        ("qwen3-0.6b_none", HUGGINGFACE, "qwen3-0.6b", "2048", "4", "none", {}),
        ("qwen3-4b_full", HUGGINGFACE, "qwen3-4b", "4096", "1", "full", {}),
        ("megatron_llama-3.2-1b_none", ONE_H100, "llama-3.2-1b", "4096", "1", "none", MEGATRON),
        ("megatron_llama-3.2-1b_full", ONE_H100, "llama-3.2-1b", "4096", "1", "full", MEGATRON),
        ("megatron_mixtral_none", ONE_H100, "mixtral, 4 layers of width 2048", "4096", "1", "none", MEGATRON),
        ("fsdp2_llama-3.2-1b_none", ONE_H100, "llama-3.2-1b", "4096", "1", "none", {"program": "fsdp2"}),
    )
}


class Recorded:
    """One trace: its file, and what the file holds."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        path.write_bytes(lzma.decompress((FOLDER / f"{name}.pickle.xz").read_bytes()))
        values = read_snapshot(path)
        self.segments: list[Part] = list(parts("segments", values["segments"]))
        self.trace: list[Part] = list(parts("device_traces[0]", values["device_traces"][0]))
        self.walk = Walk(self.segments, self.trace)

    @cached_property
    def replayed(self) -> Replay:
        """Replay the allocations, with segments where the driver put them."""
        addresses = self.walk.addresses()
        replayed = replay(list(self.walk.events()), addresses=addresses)
        assert len(addresses) == 0, "all segments of the trace were asked for, in its order and with its sizes"
        return replayed


@pytest.fixture(scope="module", params=TRACES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Read a trace once; pytest runs all of its tests one after another."""
    return Recorded(request.param, tmp_path_factory.mktemp("trace") / "memory.pickle")


def test_reserved_memory_is_that_of_the_gpu(recorded: Recorded) -> None:
    answer = snapshot(recorded.path)
    assert answer.is_whole
    assert answer.replayed is not None
    assert answer.replayed.reserved_bytes == answer.peak_reserved_bytes


def test_every_segment_is_made_when_the_gpu_made_it(recorded: Recorded) -> None:
    made = [(entry.number("addr"), entry.number("size")) for entry in recorded.trace
            if entry.word("action") == "segment_alloc"]
    blocks = recorded.replayed.allocator.blocks()
    left = {address: sum(block.size for block in of) for address, of in blocks.items()}
    assert left == {entry.number("address"): entry.number("total_size") for entry in recorded.segments}
    assert set(left.items()) <= set(made)


def test_which_of_equal_blocks_is_taken_depends_on_the_addresses_of_the_driver(recorded: Recorded) -> None:
    ascending = replay(list(recorded.walk.events())).reserved_peak
    assert (ascending != recorded.walk.reserved_peak) == (recorded.name in ORDER_MATTERS)
    assert abs(ascending / recorded.walk.reserved_peak - 1) < 0.04


def test_peaks_are_those_that_pytorch_counted_itself(recorded: Recorded) -> None:
    """By ``max_memory_allocated`` and ``max_memory_reserved``: the larger of the first step and of those behind it."""
    table, wanted = RUNS[recorded.name]
    with (DATA / table).open(encoding="utf-8", newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if wanted.items() <= row.items()]
    statistics = recorded.replayed.allocator.statistics
    for kind, peak in (("allocated", statistics.allocated_peak), ("reserved", statistics.reserved_peak)):
        assert peak == max(int(row[f"{kind}_bytes"]), int(row.get(f"first_{kind}_bytes", 0)))
