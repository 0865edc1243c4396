"""Passes of two micro-batches in turns, as Megatron-Core's own schedules run them: saved bytes, and the most there is.

Bytes are those of one rank in a step without earlier ones. What a dispatcher remembers of its last tokens, tables of
the rotary embedding, and the losses of micro-batches are there beside saved tensors and are counted on the way.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from counted import MEGATRON_CPU, values
from oracles.instruments.ledger import ledger
from oracles.megatron_core.megatron_combined import Alive, run_step
from oracles.megatron_core.megatron_cpu import Shape

pytestmark = pytest.mark.slow
CHOSEN = MEGATRON_CPU.with_choices(
    layers="experts", permute="fused", router="unfused", router_precision="fp32", balance="none", dispatch="alltoall",
    expert_passes="combined")
BY_CHUNKS = {1: CHOSEN, 2: CHOSEN.with_choices(schedule="interleaved")}


def drawn(draw: Random, p: int) -> Shape:
    """Draw sizes for which tokens of experts are the most, and a pipeline."""
    ranks, each = draw.choice((2, 4)), draw.choice((2, 3))
    experts, V = ranks * each, draw.choice((2, 2, 3)) if p > 1 else 1
    G = p + draw.randint(0, 2) if p > 1 else 0
    m = G * draw.randint(1, 3) if p > 1 else draw.randint(2, 4)
    layers = draw.randint(1, 4 if p == 1 else 3)
    return {"E": experts, "q": draw.choice((2, 3)), "h": 16 * draw.randint(2, 4), "fe": 8 * draw.randint(2, 6),
            "f": 64, "a": 2, "k": 2, "d": 4, "fs": draw.choice((0, 24)), "s": experts * draw.randint(8, 12), "b": 1,
            "u": 64, "t": 1, "e": ranks, "D": ranks, "sp": 0, "p": p, "V": V, "G": G, "m": m,
            "r": draw.randrange(p), "L": layers * p * V}


def counted(shape: Shape, *names: str) -> tuple[int, ...]:
    """Evaluate terms of a rank."""
    known = values({}, "", **shape) | {"B": shape["m"] * shape["b"] * shape["D"], "ld": 0, "step": 1}
    return ledger(BY_CHUNKS[min(2, shape["V"])], *names, **known)


def beside(shape: Shape) -> int:
    """Bytes that the rank's dispatchers remember, and tables of all of its chunks."""
    tokens, of_rank = shape["s"] * shape["b"], shape["L"] // shape["p"]
    return of_rank * 5 * tokens * shape["E"] + shape["V"] * 4 * shape["s"] * shape["d"]


def inside_of_experts(shape: Shape, draw: Random) -> tuple[dict[str, int], int, int, int]:
    """Run a step: the most bytes by pass of a part; counted ones saved, besides in a forward, and a backward pass."""
    most: dict[str, int] = defaultdict(int)

    def watch(name: str, alive: Alive) -> None:
        most[name] = max(most[name], alive.peak)

    run_step(shape, draw, watch)
    saved, forward, *backward = counted(
        shape, "stage.inner_activations", "stage.experts_forward", "stage.combine_backward", "stage.experts_backward")
    return most, saved, forward, max(backward)


@pytest.mark.cases(8, 120)
def test_the_most_inside_of_experts(draws: list[Random]) -> None:
    """On one pipeline rank it is what was counted, with the losses of micro-batches and their gradients.

    The first model has wide experts, of which the backward pass of the activation is the largest moment.
    """
    for place, draw in enumerate(draws):
        shape = drawn(draw, 1) | ({} if place else {"fe": 128, "fs": 24})
        most, saved, forward, backward = inside_of_experts(shape, draw)
        tokens = shape["s"] * shape["b"]
        maps = 4 * tokens * shape["q"]  # of sorted tokens, freed before the down projection goes back
        losses = 8 * tokens * (shape["m"] - 1) + 4 * shape["m"] + 8
        rest = saved + beside(shape) + losses
        assert most["mlp.forward"] - rest == forward, shape
        assert most["mlp.backward"] - rest + maps == backward, shape


@pytest.mark.cases(3, 40)
def test_the_most_in_a_pipeline(draws: list[Random]) -> None:
    """On two pipeline ranks with two chunks and the usual groups it is what was counted, but for losses."""
    for draw in draws:
        shape = drawn(draw, 1) | {"p": 2, "V": 2, "G": 2, "m": draw.choice((2, 4)), "r": draw.randint(0, 1)}
        shape |= {"L": 4 * draw.randint(1, 3), "q": 3, "h": 64 * draw.randint(2, 4)}
        most, saved, forward, backward = inside_of_experts(shape, draw)
        tokens = shape["s"] * shape["b"]
        rest, losses = saved + beside(shape), 8 * (tokens + 8) * shape["m"]
        assert 0 <= most["mlp.forward"] - rest - forward < losses, shape
        assert 0 <= most["mlp.backward"] - rest + 4 * tokens * shape["q"] - backward < losses, shape


@pytest.mark.cases(8, 120)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_layers_in_flight(draws: list[Random], p: int) -> None:
    """Attention of one layer more runs forward before that of another one goes back, where passes take turns."""
    for draw in draws:
        shape = drawn(draw, p)
        found = [0]

        def watch(name: str, _: Alive, found: list[int] = found) -> None:
            if name.startswith("attn."):
                found.append(found[-1] + (1 if name == "attn.forward" else -1))

        run_step(shape, draw, watch)
        (in_flight,) = counted(shape, "in_flight")
        turns = shape["m"] * shape["V"] > in_flight
        assert max(found) == in_flight * shape["L"] // (p * shape["V"]) + turns, shape
        assert found[-1] == 0


@pytest.mark.cases(6, 60)
def test_saved_by_a_micro_batch(draws: list[Random]) -> None:
    """A layer keeps more than without turns: the result of shared experts, and weights of tokens that arrived."""
    for place, draw in enumerate(draws):
        shape, precision = drawn(draw, 1), ("fp32", "bf16")[place % 2]
        kept = []
        for combined in (False, True):
            found: list[int] = []

            def watch(name: str, alive: Alive, found: list[int] = found) -> None:
                if name == "loss":
                    found.append(alive.now)

            run_step(shape, draw, watch, combined, router="fp32" if precision == "fp32" else None)
            kept.append(found[0])
        chosen = CHOSEN.with_choices(router_precision=precision)
        known = values({}, "", **shape) | {"ld": 0, "step": 1}
        both = [ledger(chosen.with_choices(expert_passes=passes), "stage.inner_activations", **known)[0]
                for passes in ("apart", "combined")]
        assert kept[1] - kept[0] == both[1] - both[0], shape
        assert kept[0] > 0
