"""Steps of Transformers that were measured on an H100: what docs/limits.md says of them."""

from __future__ import annotations

import lzma
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from oracles.instruments.traced import summed_rows
from oracles.pytorch.allocation_orders import words

from shardmath import explain
from shardmath.account.configured import configured
from shardmath.account.replaying import replayed
from shardmath.allocator.settings import Settings
from shardmath.commands.snapshot.read import parts, read_snapshot
from shardmath.commands.snapshot.walk import Walk
from shardmath.compiler.evaluators import terms_at
from shardmath.machines import Cluster
from shardmath.steps.reserved import replayed_steps
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.parameters import BY_NAME
from validation.measured.case import PEAK, RESERVED, Case
from validation.measured.metrics import pairs
from validation.measured.sets import huggingface
from validation.measured.words import is_replayed
from validation.report import PAGE
from validation.timed import alone

pytestmark = pytest.mark.slow

CASES = huggingface.read()
FOLDER = Path(__file__).resolve().parents[1] / "data" / "snapshots"
LIMITS = " ".join((Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text(encoding="utf-8").split())


def test_allocated_memory_lacks_little() -> None:
    compared = pairs(CASES, PEAK)
    assert len(compared) == len(CASES) == 28
    assert all(-0.02 < pair.error < 0.001 for pair in compared)
    assert all(-0.012 < pair.error <= 0 for pair in compared if pair.case.group in (huggingface.NONE, huggingface.FULL))
    eager = [pair for pair in compared if pair.case.group == huggingface.EAGER]
    assert [pair.site for pair in eager] == ["loss_backward", "layer_backward"]
    assert all(-(2**23) < pair.difference <= 0 for pair in eager)


def test_gradients_of_the_scores_are_those_of_the_trace(tmp_path: Path) -> None:
    """Beside the saved softmax three tensors of fp32 scores live at the peak: two gradients and a product."""
    live: dict[int, int] = {}
    now, most, sizes = 0, 0, Counter[int]()
    for event in trace_of("llama-3.2-1b_eager_full", tmp_path)["device_traces"][0]:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"]
            now += event["size"]
        elif event["action"] == "free_completed":
            now -= live.pop(event["addr"], 0)
        if now > most:
            most, sizes = now, Counter(live.values())
    assert sizes[4 * 2 * 32 * 2048 * 2048] == 1 + 3


def test_peak_of_the_replay_is_the_ledgers() -> None:
    for case in CASES:
        assert case.model is not None
        account = replayed(configured(case.model, case.gpu, **case.arguments))
        assert account.replay is not None
        assert account.replay.allocated_bytes == account.peak_bytes, case.id


#: Runs whose allocations were recorded: model, tokens, sequences, recompute.
RECORDED = {
    "llama-3.2-1b_none": ("llama-3.2-1b", 4096, 1, huggingface.NONE),
    "llama-3.2-1b_full": ("llama-3.2-1b", 4096, 2, huggingface.FULL),
    "llama-3.2-1b_eager_full": ("llama-3.2-1b", 2048, 2, huggingface.EAGER),
    "qwen2.5-3b_full": ("qwen2.5-3b", 4096, 1, huggingface.FULL),
    "qwen3-0.6b_none": ("qwen3-0.6b", 2048, 4, huggingface.NONE),
    "qwen3-4b_full": ("qwen3-4b", 4096, 1, huggingface.FULL),
}


def test_workspaces_are_those_of_the_trace(tmp_path: Path) -> None:
    """cuBLAS takes memory with the first product of each thread and keeps it; no weight or state is as large."""
    name = "qwen3-0.6b_none"
    case = case_of(name)
    assert case.model is not None
    job = configured(case.model, case.gpu, **case.arguments).job
    implementation = IMPLEMENTATIONS["huggingface"].with_choices(**job.evaluator.choices)
    letters = {BY_NAME[letter].letter: value for letter, value in job.on_rank(0).items() if letter in BY_NAME}
    ours = [summed_rows(implementation, (f"step_workspace.{thread}",), letters) for thread in ("forward", "backward")]
    live: dict[int, Mapping[str, Any]] = {}
    for event in trace_of(name, tmp_path)["device_traces"][0]:
        if event["action"] == "alloc":
            live[event["addr"]] = event
        elif event["action"] == "free_completed":
            live.pop(event["addr"], None)
    kept = [event for event in live.values() if event["size"] in ours]
    assert ours == [event["size"] for event in kept]
    # Autograd's thread has no frames of Python.
    assert [bool(event["frames"]) for event in kept] == [True, False]


@pytest.mark.parametrize("name", RECORDED)
def test_order_is_that_of_the_trace(name: str, tmp_path: Path) -> None:
    """From the first loss to the end of the second step, of all tensors larger than the angles of RoPE.

    Temporaries of kernels, which are freed before the next tensor is made, are no rows.
    """
    _, tokens, sequences, _ = RECORDED[name]
    values, case = trace_of(name, tmp_path), case_of(name)
    walk = Walk(list(parts("segments", values["segments"])), list(parts("trace", values["device_traces"][0])))
    assert case.model is not None
    job = configured(case.model, case.gpu, **case.arguments).job
    own = job.on_rank(0)
    smallest = 4 * sequences * tokens * case.model.head_dim + 1
    logits = 4 * sequences * tokens * case.model.vocab_size
    mine, theirs = (from_the_loss(words(events, smallest, has_kernels=True), logits) for events in (
        replayed_steps(job.evaluator, own, terms_at(job.evaluator.terms, own), Settings())[0].trace.events,
        walk.events()))
    assert len(mine) > 2000
    assert mine == theirs[:len(mine)]


def case_of(name: str) -> Case:
    model, tokens, sequences, group = RECORDED[name]
    (case,) = [case for case in CASES if case.id == f"{model}, {tokens} tokens, 1 x {sequences}, {group}"]
    return case


def trace_of(name: str, folder: Path) -> Mapping[str, Any]:
    path = folder / "memory.pickle"
    path.write_bytes(lzma.decompress((FOLDER / f"{name}.pickle.xz").read_bytes()))
    return read_snapshot(path)


def from_the_loss(made: list[tuple[list[int], int]], logits: int) -> list[tuple[list[int], int]]:
    return made[[size for _, size in made].index(logits):]


def test_what_is_said_of_reserved_memory() -> None:
    off = [pair.error for pair in pairs(CASES, RESERVED) if is_replayed(pair)]
    near, worst = sum(abs(error) <= 0.05 for error in off), max(off, key=abs)
    assert worst < 0
    said = re.search(r"\[(\d+) runs on an H100\]\(\S+\) what is reserved is (\S+) % off in the median, "
                     r"(\d+) are within 5 %, and the worst is (\S+) % too low", LIMITS)
    assert said is not None
    assert said.groups() == (str(len(off)), f"{100 * median(map(abs, off)):.2f}", str(near), f"{-100 * worst:.1f}")


def errors_of(changed: Mapping[str, int]) -> list[float]:
    errors = []
    for case in CASES:
        assert case.model is not None
        assert case.seconds is not None
        cluster = Cluster(name="one H100", gpu=case.gpu, gpus_per_node=8, parameters=changed)
        time = explain(case.model, cluster, **case.arguments).time
        assert time is not None
        errors.append(time.seconds / case.seconds - 1)
    return errors


def test_what_is_said_of_step_time() -> None:
    errors = errors_of({})
    said = re.search(r"in (\d+) runs on an H100 by (\d+) to (\d+) %, (\d+) % in the median", LIMITS)
    assert said is not None
    assert tuple(map(int, said.groups())) == (
        len(CASES), *(round(100 * number) for number in (min(errors), max(errors), median(errors))))


def test_steps_at_the_rates_of_kernels_alone() -> None:
    errors = errors_of(alone.BARE)
    assert errors == pytest.approx(alone.errors(alone.BARE).tolist())
    said = re.search(r"the error is (\S+) % in the median and (-\d+) to (\d+) %, with nothing fitted", LIMITS)
    assert said is not None
    middle, *ends = median(map(abs, errors)), min(errors), max(errors)
    assert said.groups() == (f"{100 * middle:.1f}", *(f"{100 * end:.0f}" for end in ends))


def test_the_section_is_as_computed() -> None:
    assert "\n\n".join(alone.section()) in PAGE.read_text(encoding="utf-8")
