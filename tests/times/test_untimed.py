"""Work without a formula of its time: no command gives a step time with it, and each says which work that is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import shardmath
from shardmath.cli.main import exit_code
from shardmath.compiler.evaluators import find
from shardmath.errors import InputError
from shardmath.generated.definitions import UNTIMED
from shardmath.search.spaces import Best, Space
from shardmath.symbolic.choices import BY_NAME
from shardmath.symbolic.components import all_components

MODEL, GPU = "llama-3.1-8b", "h100-80gb"
JOB: dict[str, int] = {"num_gpus": 16, "global_batch_size": 64}
OFFLOADED = {"optimizer_offload_percent": 50}
WORK = {"optimizer_offload": {"cpu": "the host's updates"}}


def test_all_other_work_has_rows() -> None:
    """PyTorch's switch of TF32 decides how fast products in fp32 are; nobody timed exchanges of Transformers' tokens.

    Pieces of many sizes are gathered one after another, or not, as NCCL and PyTorch have it.
    """
    assert {axis: options for axis, options in UNTIMED.items() if options} == {
        "attention": {"sdpa_steps": "fp32 steps of attention", "flex": "rates of FlexAttention"},
        "precision": {"fp32": "products in fp32"},
        "fp8": {"nvfp4": "products in FP4"},
        "optimizer": {"dist_muon": "gathers of whole parameters"},
        "dispatch": {"huggingface_sent": "tokens that Transformers sends to experts"},
        "shared_batches": {"shared": "work that several ranks do alike"}}


@pytest.mark.parametrize("component", ["attention", "windowed_attention", "whole_attention"])
def test_queries_and_keys_are_rotated_with_every_kernel(component: str) -> None:
    (work,) = [each.work for each in all_components() if each.name == component]
    for name in ("rope.q", "rope.k"):
        rows = [item for item in work if item.name.startswith(f"{name}_") and not item.name.endswith("_turned")]
        kernels = [kernel for item in rows for kernel in item.options["rope"]]
        assert sorted(kernels) == sorted(BY_NAME["rope"].options)


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the optimizer on the host be work without rows of time."""
    monkeypatch.setattr("shardmath.compiler.evaluators.UNTIMED", WORK)


@pytest.mark.slow
@pytest.mark.usefixtures("untimed")
def test_no_formula_of_it_exists() -> None:
    kernels = {"optimizer_offload": "cpu"}
    evaluator = find("megatron", kernels)
    assert not evaluator.is_timed
    with pytest.raises(InputError, match="the host's updates are not counted yet"):
        _ = evaluator.times
    with pytest.raises(InputError, match="not counted yet"):
        shardmath.formula("step.time", kernels=kernels)
    assert shardmath.formula("peak", kernels=kernels).unit == "bytes"


@pytest.mark.slow
@pytest.mark.usefixtures("untimed")
def test_an_account_has_no_time_and_says_why() -> None:
    account = shardmath.explain(MODEL, GPU, **JOB, **OFFLOADED)
    assert account.time is None
    assert account.time_unknown.endswith("the host's updates are not counted yet")
    printed = json.loads(json.dumps(account.to_dict()))
    assert (printed["time"], printed["time_unknown"]) == (None, account.time_unknown)
    assert shardmath.explain(MODEL, GPU, **JOB, **dict.fromkeys(OFFLOADED, 0)).time is not None


@pytest.mark.slow
@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize("percent", [1, 50, 100])
def test_a_sweep_ranks_by_memory_or_refuses(percent: int) -> None:
    axes = {"tensor_parallel": (1, 2), "context_parallel": (1,), "pipeline_parallel": (1, 2), "micro_batch_size": (1,)}
    found = shardmath.sweep(MODEL, GPU, **JOB, **axes, optimizer_offload_percent=percent)  # type: ignore[arg-type]
    assert "not counted yet" in found.time_unknown
    assert "step.time" not in json.dumps(found.to_dict())
    with pytest.raises(InputError, match="not counted yet"):
        shardmath.sweep(MODEL, GPU, **JOB, **axes, rank_by="time", **OFFLOADED)  # type: ignore[arg-type]


ASKED: dict[str, Callable[[], Any]] = {
    "recommend": lambda: shardmath.recommend(MODEL, GPU, **JOB, **OFFLOADED),  # type: ignore[arg-type]
    "scale": lambda: shardmath.scale(MODEL, GPU, num_gpus=[16, 32], global_batch_size=64, **OFFLOADED),
    "explore": lambda: shardmath.explore(Space(
        axes={"optimizer_offload_percent": [0, 50]}, model=MODEL, gpu=GPU, fixed=JOB,
        questions=(Best("fastest", ("step.time",), 3),))),
    "evaluate": lambda: shardmath.evaluate({"optimizer_offload_percent": [0, 50]}, MODEL, GPU, terms=["step.mfu"],
                                           **JOB),
}


@pytest.mark.slow
@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize("command", ASKED)
def test_what_asks_for_time_is_refused(command: str) -> None:
    with pytest.raises(InputError, match="not counted yet") as error:
        ASKED[command]()
    assert error.value.field == "optimizer_offload"


@pytest.mark.slow
@pytest.mark.usefixtures("untimed")
def test_the_report_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["explain", MODEL, "--gpu", GPU, "--num-gpus", "16", "--optimizer-offload-percent", "50"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Step time is not computed: optimizer_offload = 'cpu'" in shown
    assert "tokens/s" not in shown
    assert "MFU" not in shown
