"""Megatron-Core's own model on one rank of a fake job: parameters and saved bytes, against the ledger.

Which kernels are stand-ins is said in ``oracles.fused``. The rotary embedding is the unfused one, as on any
machine without Transformer Engine: the ledger's choice ``rope="unfused"``.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from counted import MEGATRON_CPU, MEGATRON_VARIANTS, saved_tables, total, value, values
from oracles.ledger import ledger
from oracles.megatron_cpu import FUSED, FUSED_VIEW, LOCAL, Batch, Kernels, config, forward, gpt_model, one_rank
from oracles.saved import Saved

from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.recompute import MODES

VARIANTS: dict[str, tuple[Kernels, Implementation]] = {
    "fused": (FUSED, MEGATRON_CPU),
    "view": (FUSED_VIEW, MEGATRON_VARIANTS["fused,v view"][0]),
    "local": (LOCAL, MEGATRON_VARIANTS["local spec (unfused attn, torch RMSNorm)"][0]),
}


def random_layout(draw: Random, variant: str, switches: dict[str, int]) -> dict[str, int]:
    """Draw sizes and degrees by letter, as legal as Megatron-Core wants them.

    One corner is left out, because the ledger is wrong there. With more ranks than key and value heads
    Megatron-Core gathers the fused projection of all ranks, and whatever keeps v as a view of it (``value="view"``,
    the recompute of core attention, unfused attention with one query head per rank) keeps 2 s b (A + 2 K) bytes,
    not divided by t.
    """
    t, p = draw.choice((1, 1, 2, 3, 4, 8)), draw.choice((1, 1, 2, 3))
    c = draw.choice((1, 1, 2, 3)) if variant != "local" else 1
    keeps_view = variant != "fused" or "rcore" in switches
    k = t * draw.randint(1, 2) if keeps_view else draw.choice((1, 2, 3, t, 2 * t))
    if k % t and t % k:
        k = t
    a = k * draw.randint(1, 3)
    a *= 1 if a % t == 0 else t
    sp = draw.randint(0, 1) if t > 1 and variant != "local" else 0
    d = 2 * draw.randint(1, 12)
    d *= 1 if k * d % t == 0 else t
    return {
        "t": t, "c": c, "p": p, "r": draw.randrange(p), "D": draw.choice((1, 1, 2)), "sp": sp, "k": k, "a": a, "d": d,
        "h": t * draw.randint(1, 40), "f": t * draw.randint(1, 40), "s": 2 * c * t * draw.randint(1, 6),
        "b": draw.randint(1, 3), "u": t * draw.randint(4, 60), "tied": draw.randint(0, 1),
        "bias": draw.randint(0, 1), "qkn": draw.randint(0, 1),
    }


def random_stages(draw: Random, p: int) -> tuple[str, dict[str, int]]:
    """Draw the layers of the model: the ledger's choice ``stages`` and the letters that go with it."""
    each = draw.randint(1, 3)
    kind = draw.choice(("even", "ends", "ends", "accounted")) if p > 1 else "even"
    if kind == "ends":
        first, last = draw.randint(1, 3), draw.choice((0, 1, 2, 4)) if p > 2 else draw.randint(1, 4)
        return "uneven", {"Lf": first, "Ll": last, "L": first + last + each * (p - 2 if last else p - 1)}
    if kind == "accounted":
        embedding, loss = draw.choice(((0, 1), (1, 0), (1, 1)))
        return "uneven", {"eemb": embedding, "eloss": loss, "L": (each + 1) * p - embedding - loss}
    return "even", {"L": each * p}


@pytest.mark.cases(20, 250)
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_stage(draw: Random, variant: str) -> None:
    kernels, implementation = VARIANTS[variant]
    switches = dict.fromkeys(draw.choice(list(MODES.values())), 1)
    method = draw.choice(("each", "uniform", "block")) if "rfull" in switches else "each"
    shape = random_layout(draw, variant, switches) | switches | {"rn": draw.randint(1, 3)}
    stages, layers = random_stages(draw, shape["p"])
    shape |= layers
    chosen = implementation.with_choices(recompute_method=method, stages=stages)
    if method == "uniform":
        # Megatron-Core's loop over groups runs beyond the last layer unless the groups share them out evenly.
        count, = ledger(chosen, "stage_layers", **shape)
        shape["rn"] = draw.choice([group for group in range(1, count + 1) if count % group == 0])
    in_flight = draw.randint(1, shape["p"] - shape["r"])
    with one_rank(shape, draw):
        model = gpt_model(shape, config(shape, method), kernels)
        batches = [Batch.of(shape) for _ in range(in_flight)]
        mask = batches[0].mask if variant == "local" else None  # FlashAttention makes its own
        with Saved() as saved:
            outputs = [forward(model, shape, batch.with_mask(mask)) for batch in batches]
        found = saved.bytes(model, *(part for batch in batches for part in (batch.ids, batch.labels)))
    known = values({}, "", **shape) | {"B": in_flight * shape["b"] * shape["D"]}
    parameters, activation = ledger(chosen, "stage.parameters", "stage.activation", **known)
    assert sum(one.numel() for one in model.parameters()) == parameters
    assert len(outputs) == in_flight
    assert found == activation + tables(chosen, switches, known)


def tables(implementation: Implementation, switches: dict[str, int], known: dict[str, Any]) -> int:
    """Tables of the stage that autograd saves too, once: the mask, and with full recompute the angles."""
    return int(value(total(implementation, saved_tables(implementation, switches), switches), known))
