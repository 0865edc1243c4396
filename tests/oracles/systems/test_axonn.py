"""AxoNN on three tensor axes: parameters, saved bytes, products and collectives of a rank, against the ledger."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch.distributed as dist
from counted import values
from oracles.instruments.processes import on_ranks
from oracles.instruments.saved import Saved
from oracles.instruments.sent import Call, Sent, Traffic
from oracles.instruments.times import MACHINE, timed
from oracles.megatron_core.megatron_cpu import BF16, Shape
from torch import zeros
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from shardmath.files.rendering import rendered
from shardmath.symbolic.accounts import build
from shardmath.symbolic.documents.evaluator import evaluator
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parameters import BY_NAME

pytest.importorskip("axonn", reason="without axonn 0.2.0 nothing is counted; `make oracle` installs it")

from oracles.systems import axonn_run

THREE = MEGATRON.with_choices(
    tensor_axes="three", peak="saved", weight_gradient="separate", mlp="gelu", positions="learned",
    biases="linear",
)
#: The ledger's groups, by what axonn calls them.
GROUPS = {
    "tensor": "outer_intra_layer_parallel_group", "tensor_y": "inner_intra_layer_parallel_group",
    "tensor_z": "depth_intra_layer_parallel_group",
}
WAYS = {"forward": ("forward",), "backward": ("backward", "repeated")}


def random_shape(draw: Random) -> Shape:
    """Draw a model and a layout whose axes share it out."""
    t, ty, tz = (draw.choice((1, 2, 3, 4)) for _ in range(3))
    groups = t * draw.randint(1, 3)
    return {
        "t": t, "ty": ty, "tz": tz, "D": draw.randint(1, 3), "k": groups, "a": groups * draw.randint(1, 3),
        "d": 2 * draw.randint(1, 6), "h": ty * tz * draw.randint(1, 12), "f": t * draw.randint(1, 20),
        "L": draw.randint(1, 3), "s": draw.randint(1, 9), "b": draw.randint(1, 3), "u": 8, "tied": 0,
        "c": 1, "p": 1, "r": 0, "sp": 0, "rfull": draw.randint(0, 1), "zero1": 0,
        "lbias": draw.randint(0, 1), "pos": 16,
    }


@cache
def _terms() -> Any:
    memory: dict[str, Any] = {}
    exec(rendered("evaluator.py", evaluator("Memory of three axes", build(THREE), ())), memory)
    return memory["terms"], memory["INPUTS"]


def kept(**letters: int) -> dict[str, Fraction]:
    """Every term of memory, exactly."""
    terms, inputs = _terms()
    known = {**dict.fromkeys("MNn", 1), **MACHINE, **values({}, "", **letters), **letters}
    return terms(**{name: Fraction(known[BY_NAME[name].letter]) for name in inputs})


def run(shape: Shape) -> dict[str, Any]:
    """Run one micro-batch forward and backward on this rank, and the end of its step."""
    with axonn_run.three_axes(shape) as groups:
        model = axonn_run.Layers(shape)
        stream = zeros(shape["s"], shape["b"], shape["h"], dtype=BF16, requires_grad=True)
        seen: dict[str, Any] = {"parameters": sum(one.numel() for one in model.parameters())}
        layers = list(zip(model.blocks[::2], model.blocks[1::2], strict=True))
        for way in WAYS:
            with Sent() as sent, FlopCounterMode(display=False) as flops:
                if way == "forward":
                    with Saved(model) as saved:
                        output = stream
                        for attention, mlp in layers:
                            output = (checkpoint(lambda one, first=attention, last=mlp: last(first(one)), output,
                                                 use_reentrant=True) if shape["rfull"] else mlp(attention(output)))
                    seen["saved"] = saved.bytes(model)
                else:
                    output.sum().backward()
            seen[way] = {name: sent.over(getattr(groups, group)) for name, group in GROUPS.items()}
            seen[f"{way}_flops"] = flops.get_total_flops()
        with Sent() as sent:
            axonn_run.synchronise(model)
        seen["depth"] = summed(sent.calls, dist.get_process_group_ranks(groups.depth_intra_layer_parallel_group))
        seen["data"] = summed(sent.calls, dist.get_process_group_ranks(groups.data_parallel_group))
        return seen


def summed(calls: list[Call], ranks: list[int]) -> int:
    """Bytes of all-reduces among some ranks."""
    return sum(call.bytes for call in calls if call.ranks == tuple(ranks) and call.operation == "allreduce")


def compare(shape: Shape, seen: dict[str, Any]) -> None:
    """All that a rank did, beside the terms of its layers."""
    memory, time = kept(**shape), timed(THREE, **shape, B=shape["b"] * shape["D"] * shape["tz"])
    layers, norms = shape["L"], 2 * shape["h"]
    assert seen["parameters"] == layers * memory["layer.parameters"]
    assert memory["attention_norm.parameters"] + memory["ffn_norm.parameters"] == norms
    if not shape["rfull"]:
        assert seen["saved"] == layers * memory["layer.saved"]
    core = 2 * shape["s"] ** 2 * shape["b"] * (shape["a"] // shape["t"]) * shape["d"]
    once, again = layers * (time["layer.forward_flops"] - core), layers * shape["rfull"]
    assert seen["forward_flops"] == once
    assert seen["backward_flops"] == 2 * once + again * (time["layer.forward_flops"] - core)
    for way in WAYS:
        for group in GROUPS:
            expected = [layers * time.get(f"layer.{group}_{way}_{kind}", 0) for kind in ("passes", "bytes")]
            if way == "backward":
                repeated = (time.get(f"layer.{group}_forward_{kind}", 0) for kind in ("passes", "bytes"))
                expected = [one + again * more for one, more in zip(expected, repeated, strict=True)]
            alone = shape[{"tensor": "t", "tensor_y": "ty", "tensor_z": "tz"}[group]] == 1
            assert Traffic(*seen[way][group]) == (Traffic(0, 0) if alone else Traffic(*expected)), (way, group)
    # Expert mode of axonn 0.2.0 asks biases for an attribute of another name than they have, and does not sum them.
    if shape["tz"] > 1:
        assert seen["depth"] == 2 * layers * norms
    if shape["D"] > 1:
        assert seen["data"] == 2 * layers * memory["layer.parameters"]


@pytest.mark.cases(20, 400)
def test_a_rank_of_any_grid(draw: Random) -> None:
    shape = random_shape(draw)
    ranks = shape["t"] * shape["ty"] * shape["tz"] * shape["D"]
    dist.init_process_group("fake", store=FakeStore(), rank=draw.randrange(ranks), world_size=ranks)
    try:
        seen = run(shape)
    finally:
        dist.destroy_process_group()
    compare(shape, seen)


def work(rank: int, shape: Shape) -> dict[str, Any]:
    """One rank of real processes."""
    return run(shape)


@pytest.mark.cases(1, 4)
def test_real_processes(draw: Random, tmp_path: Path) -> None:
    axes = draw.sample((2, 2, 2, 1), 4)
    shape = {**random_shape(draw), **dict(zip(("t", "ty", "tz", "D"), axes, strict=True))}
    shape |= {"k": 2 * shape["t"], "a": 4 * shape["t"], "h": 12 * shape["ty"] * shape["tz"], "f": 6 * shape["t"]}
    for seen in on_ranks(work, 8, tmp_path, shape):
        compare(shape, seen)
