"""The tensor-parallel size of experts follows that of all else in Megatron-LM, unless it is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from shardmath import explain, sweep
from shardmath.cli.main import exit_code
from shardmath.errors import InputError

account: Callable[..., Any] = partial(explain, "mixtral-8x7b", "h100-80gb", seq_length=4096)


def routed(found: Any) -> int:
    """Weight bytes of the routed experts of the first rank."""
    return int(sum(line.bytes for line in found.ranks[0].lines if line.term.endswith("expert_weight")))


def test_a_bare_tensor_parallel_size_shares_out_experts_too() -> None:
    layout = {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 4, "expert_parallel": 4}
    bare = account(**layout)
    assert bare.inputs["expert_tensor_parallel"] == 2
    assert bare == account(**layout, expert_tensor_parallel=2)
    whole = account(**layout, expert_tensor_parallel=1)
    assert whole.inputs["expert_tensor_parallel"] == 1
    assert routed(whole) == 2 * routed(bare) > 0


def test_other_models_and_implementations_keep_one() -> None:
    dense = explain("llama-3.1-8b", "h100-80gb", seq_length=4096, tensor_parallel=2)
    assert dense.inputs["expert_tensor_parallel"] == 1
    assert account(implementation="huggingface").inputs["expert_tensor_parallel"] == 1


def test_what_follows_is_held_to_the_rules() -> None:
    layout = {"tensor_parallel": 8, "data_parallel": 2, "expert_parallel": 8}
    with pytest.raises(InputError, match="expert_parallel = 8: times expert_tensor_parallel must divide"):
        account(**layout)
    assert account(**layout, expert_tensor_parallel=2).inputs["expert_tensor_parallel"] == 2


@pytest.mark.parametrize("given", [{}, {"expert_tensor_parallel": 1}])
def test_a_sweep_follows_layout_by_layout(given: dict[str, int]) -> None:
    result = sweep(
        "mixtral-8x7b", "h100-80gb", 16, global_batch_size=16, seq_length=4096, recompute=["none"],
        micro_batch_size=[1], context_parallel=[1], pipeline_parallel=[1, 2], **given,
    )
    assert result.values.get("expert_tensor_parallel") == given.get("expert_tensor_parallel")
    layout = result.smallest
    assert layout is not None
    assert layout.tensor_parallel > 1
    same = account(
        tensor_parallel=layout.tensor_parallel, pipeline_parallel=layout.pipeline_parallel, num_gpus=16,
        expert_parallel=layout.expert_parallel, global_batch_size=16, micro_batch_size=layout.micro_batch_size,
        sequence_parallel=bool(layout.sequence_parallel), **given,
    )
    assert same.peak.total == layout.peak_bytes


def test_a_sweep_refuses_it_for_dense_models() -> None:
    with pytest.raises(InputError, match=r"= 2: must be 1: llama-3\.2-1b lacks layers = experts"):
        sweep("llama-3.2-1b", "h100-80gb", 2, global_batch_size=2, expert_tensor_parallel=2)


def test_the_help_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("explain", "sweep"):
        assert exit_code([command, "--help"]) == 0
        assert "[default: that of TP with megatron, else 1]" in " ".join(capsys.readouterr().out.split())


def test_replicas_of_experts_must_come_out_even() -> None:
    with pytest.raises(InputError, match="data_parallel_replicas = 2"):
        explain("mixtral-8x7b", "h100-80gb", num_gpus=8, expert_parallel=8, data_parallel_replicas=2)
    explain("mixtral-8x7b", "h100-80gb", num_gpus=16, expert_parallel=8, data_parallel_replicas=2)
