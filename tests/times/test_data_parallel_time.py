"""What data-parallel ranks wait for: how many collectives there are, and what is left of them beside a pass."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

from shardmath import explain
from shardmath.account.accounting import Explanation
from shardmath.generated import megatron_time, torchtitan_time

JOB: dict[str, Any] = {"num_gpus": 256, "micro_batch_size": 1, "global_batch_size": 256, "seq_length": 4096}


def _terms(module: Any, found: Explanation, **changed: int) -> dict[str, float]:
    assert found.time is not None
    values = {**found.inputs, **found.time.machine, "pipeline_rank": 0, **changed}
    terms: dict[str, float] = module.terms(*(float(values[name]) for name in module.INPUTS))
    return terms


def _collectives(module: Any, found: Explanation, **changed: int) -> float:
    """Passes over the ring of one gathering: what its latency adds, over the latency of a pass."""
    terms = _terms(module, found, **changed)
    quick = _terms(module, found, node_latency_ns=0, network_latency_ns=0, collective_latency_ns=0, **changed)
    return (terms["stage.gathering"] - quick["stage.gathering"]) / terms["data.latency"]


@pytest.mark.parametrize("model", ["llama-2-7b", "llama-3.1-8b"])
def test_fsdp_gathers_every_layer_the_embedding_and_the_head(model: str) -> None:
    found = explain(model, "h100-80gb", implementation="torchtitan", zero_stage=3, **JOB)
    assert _collectives(torchtitan_time, found) == pytest.approx(found.model.num_layers + 2)


@pytest.mark.parametrize("num_gpus", [16, 256])
def test_buckets_of_megatron_grow_with_the_ranks(num_gpus: int) -> None:
    found = explain("llama-2-7b", "h100-80gb", **{**JOB, "num_gpus": num_gpus})
    parameters = _terms(megatron_time, found)["stage.parameters"]
    buckets = ceil(parameters / max(40_000_000, 1_000_000 * num_gpus))
    assert _collectives(megatron_time, found, overlap_param_gather=1) == pytest.approx(buckets)
    assert _collectives(megatron_time, found, overlap_param_gather=0) == pytest.approx(1)


@pytest.mark.parametrize("slowdown", [0, 159, 400])
def test_what_hides_costs_its_share_and_what_does_not_is_waited_for(slowdown: int) -> None:
    found = explain("llama-2-7b", "h100-80gb", **JOB)
    for bandwidth in (50 * 10**9, 5 * 10**8):
        terms = _terms(megatron_time, found, overlap_grad_reduce=1, overlap_param_gather=1,
                       overlap_slowdown_per_mille=slowdown, network_bandwidth=bandwidth)
        passes = (("stage.gathering", "stage.forward_computing"), ("stage.reducing", "stage.backward_computing"))
        hidden = [max(slowdown / 1000 * terms[moved], terms[moved] - terms[computed]) for moved, computed in passes]
        assert terms["stage.data_waiting"] == pytest.approx(sum(hidden))
