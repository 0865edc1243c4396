"""Inputs of experts on the host, as Megatron-Core's offload of modules moves them in steps of its own schedules."""

from __future__ import annotations

from random import Random

import pytest
from counted import MEGATRON_CPU, values
from oracles.instruments.ledger import ledger
from oracles.megatron_core.grouped_linear import RECIPES
from oracles.megatron_core.megatron_cpu import Shape
from oracles.megatron_core.megatron_offload import run_offloaded

from shardmath.symbolic.implementations import Implementation

pytestmark = pytest.mark.slow
CHOSEN = MEGATRON_CPU.with_choices(
    layers="experts", permute="fused", router="unfused", router_precision="fp32", balance="none", dispatch="alltoall",
    peak="saved")


def drawn(draw: Random, p: int) -> Shape:
    """Draw sizes with which the input of the experts of a rank has about as many elements as one that is moved."""
    ranks, V = 2, draw.choice((1, 2)) if p > 1 else 1
    return {"E": 4, "q": 2, "h": draw.choice((384, 512, 512, 640)), "fe": 16, "f": 64, "a": 2, "k": 2, "d": 4,
            "fs": draw.choice((0, 24)), "s": 1024, "b": 1, "u": 64, "t": 1, "e": ranks, "D": ranks, "sp": 0, "p": p,
            "V": V, "G": p if V > 1 else 0, "m": p * draw.randint(1, 3), "r": draw.randrange(p),
            "L": draw.randint(1, 3) * p * V}


def counted(chosen: Implementation, shape: Shape, *names: str) -> tuple[int, ...]:
    """Evaluate terms of a rank."""
    known = values({}, "", **shape) | {"B": shape["m"] * shape["b"] * shape["D"], "ld": 0, "step": 1}
    return ledger(chosen, *names, **known)


@pytest.mark.cases(3, 60)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_inputs_of_experts_leave(draws: list[Random], p: int) -> None:
    """Where the library has them after its first step, and what the GPU then holds less than without offload."""
    for draw in draws:
        shape, recipe = drawn(draw, p), draw.choice(("none", "none", "current", "block", "mx"))
        whole, places = (run_offloaded(shape, draw, modules, recipe=RECIPES.get(recipe))
                         for modules in ((), ("expert_fc1",)))
        schedule = "interleaved" if shape["V"] > 1 else "1f1b"
        usual = CHOSEN.with_choices(fp8=recipe, schedule=schedule)
        saved, = counted(usual, shape, "stage.inner_activations")
        kept, moved, held, host = counted(
            usual.with_choices(module_offload="expert_fc1"), shape, "stage.inner_activations", "expert_layer.moved",
            "held_expert_layers", "stage.host")
        size = 2 * shape["q"] * shape["s"] * shape["h"]
        assert moved == (size if shape["h"] >= 512 else 0)
        several = held > shape["L"] // p  # micro-batches in flight: a forward pass works on another input
        assert places.here == ((1 + several) * size if moved else held * size), (shape, recipe)
        assert places.host == host, (shape, recipe)
        assert whole.saved - places.saved == saved - kept + several * moved, (shape, recipe)
