"""Megatron-Core's flex dispatcher: buffers outside of PyTorch, tokens that arrive, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from counted import DEFAULTS, inline, value

import shardmath
from shardmath.errors import InputError
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parallel.dispatch import buffer_bytes
from shardmath.symbolic.parameters import symbol

GPU = "h100-80gb"
MODEL = "qwen3-30b-a3b"
JOB: dict[str, Any] = {"num_gpus": 16, "expert_parallel": 8, "pipeline_parallel": 2}


def deepep_buffer(ranks: int, hidden: int, near: int, far: int) -> int:
    """DeepEP's size hints for bf16 tokens on 20 multiprocessors, of chunks of ``near`` and ``far`` tokens."""
    channels, peers, servers = 20 // 2, min(ranks, 8), max(ranks // 8, 1)
    token = 2 * hidden + 8 + 128 * 8 + 128 * 4 + 128 * 4  # with its origin, and 128 experts, weights and scales
    nvlink = channels * peers * ((2 * servers + 3) * 4 + near * token)
    whole = -(-nvlink // 128) * 128 + 32 * 2**20
    if ranks > 8:
        rdma = channels * servers * ((8 * 2 + 2) * 2 * 4 + far * 2 * (token + 16))
        whole += -(-(rdma + 256 * 2**20) // (512 * 2**20)) * 512 * 2**20
    return whole


@pytest.mark.parametrize(("ranks", "near", "far"), [
    (2, 256, 0), (8, 256, 0), (16, 288, 140), (64, 288, 140), (128, 560, 140), (144, 720, 140),
])
def test_buffers_of_deepep(ranks: int, near: int, far: int) -> None:
    known = {**DEFAULTS, "e": ranks, "et": 1, "h": 7168}
    buffer = value(buffer_bytes({"layers": "experts", "dispatch": "deepep"}), known)
    assert buffer == deepep_buffer(ranks, 7168, near, far)


def test_buffers_of_hybridep_hold_all_tokens_of_the_group() -> None:
    known = {**DEFAULTS, "e": 32, "et": 1, "h": 7168, "s": 4096, "b": 1, "E": 256, "ts": 1}
    buffer = value(buffer_bytes({"layers": "experts", "dispatch": "hybridep"}), known)
    assert buffer == 32 * 4096 * (7168 * 2 + 256 * 4 + 7168 // 128 * 4)
    assert buffer_bytes({"layers": "experts", "dispatch": "alltoall"}) == 0


def test_no_more_tokens_arrive_than_are_there_or_are_worked_on() -> None:
    arrived = inline(MEGATRON.with_choices(layers="experts", dispatch="deepep"), symbol("xr"), ())
    known = {**DEFAULTS, "s": 64, "b": 2, "E": 64, "q": 8, "t": 1, "et": 1}
    assert value(arrived, {**known, "e": 4, "D": 4}) == 4 * 128  # all tokens of four ranks
    assert value(arrived, {**known, "e": 32, "D": 32}) == 8 * 128  # one of eight experts each


@pytest.mark.slow
def test_process_has_the_buffers() -> None:
    """Of two dispatchers the tensors differ, and the process by the buffers too."""
    plain, deepep = (shardmath.explain(MODEL, GPU, kernels={"dispatch": dispatch}, **JOB)
                     for dispatch in ("alltoall", "deepep"))
    beside = [run.process.total - run.process.reserved for run in (plain, deepep)]
    assert beside[1] - beside[0] == deepep_buffer(8, 2048, 256, 0)
    assert deepep.time is not None


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "kernels", "part"), [
    ({"expert_parallel": 1}, {}, "needs other ranks"),
    ({"model": "deepseek-v2", "num_gpus": 20, "expert_parallel": 10}, {}, "at most 8, or a multiple of 8"),
    ({"expert_capacity_percent": 125}, {}, "not counted yet"),
    ({}, {"router_precision": "bf16"}, "choose fp32"),
])
def test_what_is_not_counted_is_refused(changes: dict[str, Any], kernels: dict[str, str], part: str) -> None:
    with pytest.raises(InputError, match=part):
        shardmath.explain(gpu=GPU, kernels={"dispatch": "deepep", **kernels}, **{"model": MODEL, **JOB, **changes})
