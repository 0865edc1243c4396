"""A GPU on an axis has its own figures: memory, speeds, links and servers are those of a single run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import shardmath
from shardmath import explain
from shardmath.account.time import machine_values
from shardmath.catalogue import read
from shardmath.errors import InputError
from shardmath.machines import Cluster
from shardmath.search.spaces import Best, Space
from shardmath.search.spaces.declared import Axis
from shardmath.search.spaces.parts import Part

JOB = {"num_gpus": 64, "global_batch_size": 128, "tensor_parallel": 2, "pipeline_parallel": 2}


def is_known(name: str) -> bool:
    """True for a GPU of which all figures are known, and a network."""
    try:
        return bool(Cluster.named(name).values("bf16", 64))
    except InputError:
        return False


NAMES = [name for name in read("gpus") if is_known(name)]
BEST = (Best("best", ("step.time",), 99, among="legal"),)


def space(axes: dict[str, Any], **others: Any) -> Space:
    return Space(**{"axes": axes, "model": "llama-3.1-8b", "fixed": JOB, "questions": BEST, **others})


def values_at(part: Part, place: int) -> dict[str, int]:
    """All symbols of the candidate ``place`` of the only axis."""
    axis: Axis
    axis, = part.axes
    return {**part.fixed, **{symbol: values[place] for symbol, values in axis.values.items()}}


def test_every_kind_has_the_figures_of_a_single_run() -> None:
    part, = space({"gpu": NAMES}).parts()
    assert len(NAMES) > 10
    for place, name in enumerate(NAMES):
        found = explain("llama-3.1-8b", name, **JOB)
        assert found.time is not None
        mine = values_at(part, place)
        assert {symbol: mine[symbol] for symbol in found.time.machine} == found.time.machine
        assert {symbol: mine[symbol] for symbol in part.inputs if symbol in found.inputs} == {
            symbol: found.inputs[symbol] for symbol in part.inputs if symbol in found.inputs}


@pytest.mark.parametrize("pair", [*pairwise(NAMES), *pairwise(reversed(NAMES))], ids="+".join)
def test_each_pair_is_two_single_spaces(pair: tuple[str, str]) -> None:
    both, = space({"gpu": list(pair)}).parts()
    for place, name in enumerate(pair):
        alone, = space({"micro_batch_size": [1]}, gpu=name).parts()
        mine, other = values_at(both, place), values_at(alone, 0)
        assert {symbol: mine[symbol] for symbol in both.inputs if symbol in mine} == {
            symbol: other[symbol] for symbol in both.inputs if symbol in mine}


@pytest.mark.slow
@pytest.mark.parametrize("names", [("h100-80gb", "a100-80gb"), ("a100-80gb", "h100-80gb")])
def test_what_is_answered_is_that_of_single_runs(names: tuple[str, str]) -> None:
    answer = shardmath.explore(space({"gpu": list(names)})).answers["best"]
    seconds = {row.labels["gpu"]: row.keys["step.time"] for row in answer.groups[0].configurations}  # type: ignore[union-attr]
    for name in names:
        found = explain("llama-3.1-8b", name, **JOB).time
        assert found is not None
        assert seconds[name] == pytest.approx(found.seconds, rel=1e-12)
    assert seconds["h100-80gb"] < seconds["a100-80gb"]


@pytest.mark.parametrize("name", sorted({*read("gpus")} - {*NAMES}))
def test_a_kind_without_a_figure_is_named(name: str) -> None:
    with pytest.raises(InputError, match=name):
        space({"gpu": ["h100-80gb", name]}).parts()
    assert space({"gpu": ["h100-80gb", name]}, questions=()).parts()


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_servers_of_another_size(size: int) -> None:
    """Fixed or on an axis, a size of servers moves bandwidths as the option of ``explain`` does."""
    found = explain("llama-3.1-8b", "h100-80gb", node_size=size, **JOB).time
    assert found is not None
    fixed, = space({"micro_batch_size": [1]}, gpu="h100-80gb", fixed={**JOB, "node_size": size}).parts()
    moved, = space({"node_size": [1, size, 32]}, gpu="h100-80gb").parts()
    axis, = space({"gpu": ["a100-80gb", "h100-80gb"]}, fixed={**JOB, "node_size": size}).parts()
    for mine in (values_at(fixed, 0), values_at(moved, 1), values_at(axis, 1)):
        assert {symbol: mine[symbol] for symbol in found.machine} == found.machine


def test_sizes_of_servers_beside_kinds_of_gpus_are_refused_with_time() -> None:
    axes = {"gpu": ["a100-80gb", "h100-80gb"], "node_size": [4, 8]}
    with pytest.raises(InputError, match="bandwidths depend on it"):
        space(axes).parts()
    assert space(axes, questions=(Best("least", ("peak",), 1),)).parts()


def test_a_cluster_keeps_its_servers_and_its_memory() -> None:
    usual = Cluster.named("h100-80gb")
    cluster = Cluster(name="own", gpu=usual.gpu, gpus_per_node=4, network=usual.network,
                      parameters={"context_bytes": 123, "matmul_per_mille": 600})
    found = explain("llama-3.1-8b", cluster, **JOB)
    part, = space({"micro_batch_size": [1]}, cluster=cluster).parts()
    mine = values_at(part, 0)
    assert found.time is not None
    assert {symbol: mine[symbol] for symbol in found.time.machine} == found.time.machine
    assert (mine["node_size"], found.inputs["node_size"]) == (4, 4)
    assert {symbol: mine[symbol] for symbol in part.inputs if symbol in found.inputs} == {
        symbol: found.inputs[symbol] for symbol in part.inputs if symbol in found.inputs}


@pytest.mark.slow
def test_fp8_needs_kinds_that_have_it() -> None:
    kernels = {"fp8": "delayed", "peak": "saved"}
    with pytest.raises(InputError, match="a100-80gb"):
        space({"gpu": ["h100-80gb", "a100-80gb"]}, kernels=kernels).parts()
    part, = space({"gpu": ["h100-80gb", "h200-141gb"]}, kernels=kernels).parts()
    evaluator = part.evaluator
    for place, name in enumerate(("h100-80gb", "h200-141gb")):
        expected = machine_values(evaluator, Cluster.named(name), 64)
        assert values_at(part, place)["matmul_flops"] == expected["matmul_flops"]


@pytest.mark.slow
def test_models_have_their_own_default_of_the_sequence(tmp_path: Path) -> None:
    """Learned positions limit GPT-2 to 1024 tokens, and no other model of the axis."""
    parts = Space(axes={"model": ["gpt2-xl", "llama-3.1-8b"]}, gpu="h100-80gb", implementation="huggingface",
                  fixed={"num_gpus": 1, "global_batch_size": 1}).parts()
    lengths = {}
    for part in parts:
        axis = next(axis for axis in part.axes if axis.name == "model")
        for place, label in enumerate(axis.labels):
            lengths[label] = {**part.fixed, **{name: each[place] for name, each in axis.values.items()}}["seq_length"]
    assert lengths == {"gpt2-xl": 1024, "llama-3.1-8b": 8192}
