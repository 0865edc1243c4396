"""Steps that are made from the ledger beside recorded ones: peaks, reserved memory, and the order of the passes.

The traces are of Megatron-Core's own layers on an H100. Nothing is fitted to them; the order inside of a layer was
read in the trace without recompute.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest

from shardmath.account.configured import configured
from shardmath.allocator.settings import MIB, Settings
from shardmath.allocator.trace import Action, Event
from shardmath.commands.snapshot.read import parts, read_snapshot
from shardmath.commands.snapshot.walk import Walk
from shardmath.compiler.evaluators import terms_at
from shardmath.models.model import Model
from shardmath.steps.reserved import replayed_steps

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LOCAL = {"peak": "megatron_local", "optimizer_kernel": "foreach", "weight_gradient": "separate", "rope": "unfused",
         "value": "view"}
#: Model, tokens and recompute of a trace; its peak and reserved memory less those of the ledger's steps, per mille.
RUNS: dict[str, tuple[str, int, str, float, float]] = {
    "megatron_llama-3.2-1b_none": ("llama-3.2-1b", 4096, "none", 0.002, 2.1),
    "megatron_llama-3.2-1b_full": ("llama-3.2-1b", 4096, "full", -0.001, -2.2),
    "h100": ("small", 1024, "none", -0.001, -2.7),
}


def recorded(name: str, folder: Path) -> Walk:
    path = ROOT / "docs" / "snapshots" / f"{name}.pickle"
    if not path.exists():
        path = folder / "memory.pickle"
        path.write_bytes(lzma.decompress((ROOT / "tests" / "data" / "snapshots" / f"{name}.pickle.xz").read_bytes()))
    values = read_snapshot(path)
    return Walk(list(parts("segments", values["segments"])), list(parts("trace", values["device_traces"][0])))


def generated(model: str, tokens: int, recompute: str) -> Any:
    """Return the ledger's steps of a run on one GPU, and their replay."""
    found = Model.from_config(ROOT / "docs" / "snapshots" / "small.json") if model == "small" else Model.named(model)
    job = configured(found, "h100-80gb", implementation="megatron", num_gpus=1, seq_length=tokens,
                     recompute=recompute, distributed_optimizer=False, kernels=LOCAL).job
    values = job.on_rank(0)
    return replayed_steps(job.evaluator, values, terms_at(job.evaluator.terms, values), Settings())[:2]


@pytest.mark.parametrize("name", RUNS)
def test_peaks_and_reserved_memory(name: str, tmp_path: Path) -> None:
    *run, peak, reserved = RUNS[name]
    walk, (steps, replay) = recorded(name, tmp_path), generated(*run)
    assert 1000 * (steps.trace.peak / walk.peak - 1) == pytest.approx(peak, abs=0.002)
    assert 1000 * (replay.reserved_peak / walk.reserved_peak - 1) == pytest.approx(reserved, abs=0.1)


def passes(events: Iterable[Event], logits: int) -> list[int]:
    """List what is made and freed, with a minus, of a MiB and more between the second step's forward pass and its end.

    Gate and up projection are one tensor, as are queries, keys and values: their parts are left out.
    """
    sizes: dict[int, int] = {}
    order: list[int] = []
    losses: list[int] = []
    for event in events:
        if event.action is Action.ALLOCATE:
            sizes[event.key] = event.size
            if event.size == logits:
                losses.append(len(order))
        if event.action in (Action.ALLOCATE, Action.FREE) and sizes[event.key] >= MIB:
            order.append(sizes[event.key] if event.action is Action.ALLOCATE else -sizes[event.key])
    return order[losses[1] - 400: losses[1] + 600]


def test_order_of_the_passes(tmp_path: Path) -> None:
    """Of 1,000 events around the loss of the second step, nine of ten are the same in the same order."""
    logits = 4 * 4096 * 128256
    theirs = passes(recorded("megatron_llama-3.2-1b_none", tmp_path).events(), logits)
    ours = passes(generated("llama-3.2-1b", 4096, "none")[0].trace.events, logits)
    assert len(ours) == len(theirs) == 1000
    assert SequenceMatcher(None, ours, theirs, autojunk=False).ratio() > 0.9
