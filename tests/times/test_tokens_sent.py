"""Time of tokens that go to experts: over which links they go, what hides them, and what the host needs for experts."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from shardmath.account.time import machine_values
from shardmath.commands.calibrate.runs import asked
from shardmath.machines import Cluster

pytestmark = pytest.mark.slow

CLUSTER = Cluster.named("h100-80gb", "ndr-400")
MODEL, GPUS = "qwen3-30b-a3b", 64
JOB: dict[str, Any] = {"num_gpus": GPUS, "global_batch_size": 128}
FP8 = {"fp8": "mx", "fp8_weights": "primary"}


def terms(kernels: dict[str, str], expert_parallel: int, tensor: int = 1, **changed: int) -> dict[str, Fraction]:
    """Every term of the first rank, exact."""
    job = asked(MODEL, CLUSTER.gpu, expert_parallel=expert_parallel, expert_tensor_parallel=tensor,
                tensor_parallel=tensor, kernels=kernels, **JOB)
    module = job.evaluator.times
    values = {**job.on_rank(0), **machine_values(job.evaluator, CLUSTER, GPUS), **changed}
    found: dict[str, Fraction] = module.terms(**{name: Fraction(values[name]) for name in module.INPUTS})
    return {**{name: Fraction(values[name]) for name in module.INPUTS}, **found}


def seconds(ranks: list[int], size: Fraction, node: Fraction, adapter: Fraction, once: Fraction | None) -> Fraction:
    """Seconds in which the first rank sends its parts, one by one, or a token ``once`` to each other domain.

    What is sent once goes on to the ranks of the domain where it arrives, and others send as much here.
    """
    domains = Counter(rank // 8 for rank in ranks)
    own = ranks[0] // 8
    part = size / len(ranks)
    near = (domains[own] - 1) * part
    far = sum(number * part for domain, number in domains.items() if domain != own)
    if once is not None:
        far = sum(min(once, number * part) for domain, number in domains.items() if domain != own)
        near = sum((number - 1) * part for number in domains.values())
    return max(near / node, far / adapter)


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("dispatch", ["alltoall", "deepep", "hybridep"])
def test_parts_go_over_their_own_links(dispatch: str, ranks: int, tensor: int) -> None:
    found = terms({"dispatch": dispatch}, ranks, tensor)
    flex = dispatch != "alltoall"
    group, number = ("expert_all", ranks * tensor) if flex else ("expert", ranks)
    places = [place * (1 if flex else tensor) for place in range(number)]
    node = found["node_bandwidth"] * found["node_per_mille"] / 1000
    adapter = found["network_bandwidth"] * found["flex_network_per_mille" if flex else "network_per_mille"] / 1000
    tokens = Fraction(4096, tensor)
    copies = min(8, ranks) * tensor if flex else 8
    size, once = copies * tokens * 2048 * 2, tokens * 2048 * 2
    expected = seconds(places, size, node, adapter, once if flex else None)
    assert size * (number - 1) / number / found[f"{group}.pair_bandwidth"] == expected


@pytest.mark.parametrize("ranks", [8, 16, 32, 64, 128])
def test_a_token_goes_to_the_servers_of_its_groups(ranks: int) -> None:
    """DeepSeek-V3's tokens use 4 of 8 groups of experts: 4 of 8 servers, or 8 of 16; two servers hold four each."""
    servers = ranks // 8
    job = asked("deepseek-v3", CLUSTER.gpu, expert_parallel=ranks, num_gpus=1024, global_batch_size=1024,
                kernels={"dispatch": "deepep"})
    module = job.evaluator.times
    values = {**job.on_rank(0), **machine_values(job.evaluator, CLUSTER, 1024)}
    inputs = {name: Fraction(values[name]) for name in module.INPUTS}
    size = 8 * 4096 * 7168 * 2
    sent = size * Fraction(ranks - 1, ranks) / module.terms(**inputs)["expert_all.pair_bandwidth"]
    node = inputs["node_bandwidth"] * inputs["node_per_mille"] / 1000
    adapter = inputs["network_bandwidth"] * inputs["flex_network_per_mille"] / 1000
    reached = {1: 1, 2: 2, 4: 4, 8: 4, 16: 8}[servers]
    near, far = 7 * Fraction(size, 8), Fraction(size, 8) * reached * Fraction(servers - 1, servers)
    assert sent == max(near / node, far / adapter)


@pytest.mark.parametrize("dispatch", ["deepep", "hybridep"])
def test_tokens_in_fp8_are_sent_with_a_scale_for_128_elements(dispatch: str) -> None:
    """Of each token 2048 bytes and 16 scales of 4 bytes go to experts; sums of results return in 16 bits."""
    sixteen, eight = (terms({"dispatch": dispatch}, 16, micro_batch_size=1, fp8_dispatch=switch) for switch in (0, 1))
    tokens = 8 * sixteen["seq_length"]  # that arrived on a rank: of 16 ranks half of all
    for way in ("forward", "backward"):
        part = f"expert_layer.expert_all_{way}"
        assert sixteen[f"{part}_bytes"] - eight[f"{part}_bytes"] == tokens * (2 * 2048 - (2048 + 4 * 16))
        assert sixteen[f"{part}_passes"] == eight[f"{part}_passes"]
    assert sixteen["expert_layer.kernels"] - eight["expert_layer.kernels"] == -1
    assert eight["step.time"] < sixteen["step.time"]


def test_a_network_is_no_ring_for_them() -> None:
    """Of 32 ranks on four servers three of four parts leave the server, each over the rank's own adapter."""
    found = terms({"dispatch": "alltoall"}, 32)
    assert found["expert.pair_bandwidth"] < found["expert.bandwidth"] / 4


def test_no_other_step_has_such_links() -> None:
    dense = asked("llama-3.1-8b", CLUSTER.gpu, num_gpus=8).evaluator.times
    assert "pair_bandwidth" not in str(sorted(dense.INPUTS))
    assert "expert_overlap" not in dense.INPUTS
    assert "expert_launch_ns" not in dense.INPUTS


@pytest.mark.parametrize("ranks", [8, 32])
def test_another_micro_batch_hides_them(ranks: int) -> None:
    plain, hidden = (terms({}, ranks, expert_overlap=switch) for switch in (0, 1))
    for way, other in (("forward", "backward"), ("backward", "forward")):
        waited, computing = (plain[f"expert_layer.{name}"] for name in (f"expert_{way}_waiting", f"{other}_computing"))
        slowed = waited * plain["overlap_slowdown_per_mille"] / 1000
        assert hidden[f"expert_layer.expert_{way}_waiting"] == max(slowed, waited - computing)
    assert hidden["step.time"] < plain["step.time"]


@pytest.mark.parametrize(("recipe", "each"), [
    ({}, 0), ({"fp8": "delayed", "fp8_weights": "primary"}, 0), (FP8, 200_000), ({**FP8, "fp8": "current"}, 200_000),
])
def test_the_host_launches_kernels_of_one_expert_after_the_other(recipe: dict[str, str], each: int) -> None:
    for ranks in (1, 8, 32):
        found = terms(recipe, ranks, micro_batch_size=1)
        launched = (found["expert_layer.kernels"] * found["launch_ns"] + Fraction(128, ranks) * each) / 10**9
        for way in ("forward", "backward"):
            late = found[f"expert_layer.{way}_launching"]
            assert late == max(0, launched - (found[f"expert_layer.{way}_time"] - late))
