"""What leaves the GPU: states by the hybrid optimizer of Megatron-Core, saved tensors by Transformer Engine's rule."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from counted import DEFAULTS, values
from oracles.systems.host_streams import layers_on_gpu

from shardmath import explain
from shardmath.errors import InputError
from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.systems.system import SMALLEST_MOVED

OPTIMIZER = MEGATRON.with_choices(optimizer_offload="cpu")
#: Saved tensors alone: nobody has counted the moments of a step with activation offload.
SAVED = MEGATRON.with_choices(peak="saved")
LAYERS = SAVED.with_choices(activation_offload="layers")


def numbers(implementation: object, known: dict[str, int], *names: str) -> list[Fraction]:
    found = evaluate(build(implementation).closure(names), known)  # type: ignore[arg-type]
    return [Fraction(found[name]) for name in names]


def shape(draw: Random) -> dict[str, int]:
    k = draw.randint(1, 4)
    return values({}, "", k=k, a=2 * k, d=16 * draw.randint(1, 8), h=64 * draw.randint(1, 32), zero1=1,
                  f=32 * draw.randint(1, 64), u=1000, L=draw.randint(2, 12), s=256 * draw.randint(1, 16),
                  D=draw.choice((1, 2, 4)), w=draw.choice((2, 4)))


@pytest.mark.slow
def test_states_leave_in_proportion() -> None:
    draw = Random(1)
    for _ in range(20):
        known = shape(draw)
        (whole,) = numbers(MEGATRON, known, "stage.optimizer")
        for percent in (0, 25, 100, draw.randint(1, 99)):
            kept, host = numbers(OPTIMIZER, {**known, "oo": percent}, "stage.optimizer", "stage.host")
            assert kept * 100 == whole * (100 - percent)
            assert host * 12 * 100 == whole * 16 * percent


def test_large_saved_tensors_of_some_layers_leave() -> None:
    draw = Random(2)
    for _ in range(20):
        known = shape(draw)
        moved = draw.randrange(known["L"])
        whole, a_layer = numbers(SAVED, known, "stage.activation", "layer.saved")
        kept, large, host = numbers(LAYERS, {**known, "ol": moved}, "stage.activation", "layer.moved", "stage.host")
        assert large <= a_layer
        forward, backward = layers_on_gpu(known["L"], moved)
        assert max(map(len, (*forward, *backward.values()))) == known["L"] - moved
        assert all(layer in here for layer, here in backward.items())
        assert kept == whole - moved * large
        assert host == moved * large


def test_small_tensors_stay() -> None:
    """A token's statistics are few; its hidden state is not."""
    known = {**shape(Random(3)), "s": 4096, "b": 1, "h": 256, "a": 4, "k": 2, "d": 64, "f": 512, "t": 1}
    large, saved = numbers(LAYERS, known, "attention_norm.moved", "attention_norm.saved")
    assert SMALLEST_MOVED == 4096 * 256
    assert (large, saved - large) == (2 * 4096 * 256, 4 * 4096)
    assert numbers(LAYERS, {**known, "h": 255}, "attention_norm.moved") == [0]


@pytest.mark.slow
def test_a_person_asks_for_offload_by_its_amount() -> None:
    common = {"seq_length": 4096, "num_gpus": 4, "tensor_parallel": 2}
    whole = explain("llama-3.1-8b", "h100-80gb", **common)  # type: ignore[arg-type]
    half = explain("llama-3.1-8b", "h100-80gb", optimizer_offload_percent=50, **common)  # type: ignore[arg-type]
    less = explain("llama-3.1-8b", "h100-80gb", cpu_offloading_num_layers=10, **common)  # type: ignore[arg-type]
    assert whole.peak.by_role["optimizer"] == 2 * half.peak.by_role["optimizer"]
    assert less.peak.by_role["activation"] < whole.peak.by_role["activation"]
    with pytest.raises(InputError, match="must be 1 where saved tensors are offloaded"):
        explain("llama-3.1-8b", "h100-80gb", cpu_offloading_num_layers=10, pipeline_parallel=2)
    with pytest.raises(InputError, match="must be less than num_layers"):
        explain("llama-3.1-8b", "h100-80gb", cpu_offloading_num_layers=32)
    with pytest.raises(InputError, match="must be one of none with huggingface"):
        explain("llama-3.1-8b", "h100-80gb", implementation="huggingface", optimizer_offload_percent=50)
    assert DEFAULTS["oo"] == DEFAULTS["ol"] == 0
