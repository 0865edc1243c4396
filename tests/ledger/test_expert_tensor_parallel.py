"""The tensor-parallel size of experts: that of all else in an account of Megatron-LM, any inside a node in a search."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest

from shardmath import explain, sweep
from shardmath.cli.main import exit_code
from shardmath.errors import InputError

account: Callable[..., Any] = partial(explain, "mixtral-8x7b", "h100-80gb", seq_length=4096)


def routed(found: Any) -> int:
    """Weight bytes of the routed experts of the first rank."""
    return int(sum(line.bytes for line in found.ranks[0].lines if line.term.endswith("expert_weight")))


@pytest.mark.slow
def test_a_bare_tensor_parallel_size_shares_out_experts_too() -> None:
    layout = {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 4, "expert_parallel": 4}
    bare = account(**layout)
    assert bare.inputs["expert_tensor_parallel"] == 2
    assert bare == account(**layout, expert_tensor_parallel=2)
    whole = account(**layout, expert_tensor_parallel=1)
    assert whole.inputs["expert_tensor_parallel"] == 1
    assert routed(whole) == 2 * routed(bare) > 0


@pytest.mark.slow
def test_other_models_and_implementations_keep_one() -> None:
    dense = explain("llama-3.1-8b", "h100-80gb", seq_length=4096, tensor_parallel=2)
    assert dense.inputs["expert_tensor_parallel"] == 1
    assert account(implementation="huggingface").inputs["expert_tensor_parallel"] == 1


@pytest.mark.slow
def test_what_follows_is_held_to_the_rules() -> None:
    layout = {"tensor_parallel": 8, "data_parallel": 2, "expert_parallel": 8}
    with pytest.raises(InputError, match="expert_parallel = 8: times expert_tensor_parallel must divide"):
        account(**layout)
    assert account(**layout, expert_tensor_parallel=2).inputs["expert_tensor_parallel"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("asked", [None, [1, 2], (2,)], ids=str)
def test_a_sweep_tries_all_inside_a_node_or_those_asked_for(asked: list[int] | None) -> None:
    named = {} if asked is None else {"expert_tensor_parallel": asked}
    result = sweep(
        "mixtral-8x7b", "b200-180gb", 16, global_batch_size=16, seq_length=4096, recompute=["none"],
        micro_batch_size=[1], context_parallel=[1], pipeline_parallel=[2], tensor_parallel=[4], sequence_parallel=[1],
        virtual_pipeline=[1], account_for_embedding=0, account_for_loss=0, **named,
    )
    peaks = {}
    for experts, own in product([1, 2, 4, 8], asked or [1, 2, 4, 8]):
        if 8 % (experts * own) == 0:  # ranks of a stage
            peaks[experts, own] = account(
                tensor_parallel=4, pipeline_parallel=2, num_gpus=16, expert_parallel=experts, global_batch_size=16,
                expert_tensor_parallel=own, sequence_parallel=True,
            ).peak.total
    assert result.legal == sum(result.verdicts.values()) == len(peaks)
    assert {layout.expert_tensor_parallel for layout in result.best} == {own for _, own in peaks}
    layout = result.smallest
    assert layout is not None
    assert layout.peak_bytes == min(peaks.values())
    assert peaks[layout.expert_parallel, layout.expert_tensor_parallel] == layout.peak_bytes


@pytest.mark.slow
def test_a_sweep_refuses_it_for_dense_models() -> None:
    with pytest.raises(InputError, match=r"= 2: must be 1: llama-3\.2-1b has no experts"):
        sweep("llama-3.2-1b", "h100-80gb", 2, global_batch_size=2, expert_tensor_parallel=2)


@pytest.mark.parametrize(("command", "default"), [
    ("explain", "that of TP with megatron, else 1"), ("sweep", "all inside a node"), ("recommend", "all inside a node"),
])
def test_the_help_says_so(command: str, default: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([command, "--help-all"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert f"[default: {default}]" in words[words.index("--expert-tensor-parallel"):].split(" --", 1)[0]


@pytest.mark.slow
def test_replicas_of_experts_must_come_out_even() -> None:
    with pytest.raises(InputError, match="data_parallel_replicas = 2"):
        explain("mixtral-8x7b", "h100-80gb", num_gpus=8, expert_parallel=8, data_parallel_replicas=2)
    explain("mixtral-8x7b", "h100-80gb", num_gpus=16, expert_parallel=8, data_parallel_replicas=2)
