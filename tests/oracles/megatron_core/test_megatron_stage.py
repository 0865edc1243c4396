"""Megatron-Core's own model on one rank of a fake job: parameters and saved bytes, against the ledger.

Which kernels are stand-ins is said in ``oracles.megatron_core.fused``. The rotary embedding is the unfused one, as on
any machine without Transformer Engine: the ledger's choice ``rope="unfused"``.
"""

from __future__ import annotations

from random import Random

import pytest
from counted import values
from oracles.instruments.ledger import ledger
from oracles.instruments.saved import Saved
from oracles.megatron_core.megatron_cpu import Batch, config, forward, gpt_model, one_rank
from oracles.megatron_core.megatron_layouts import VARIANTS, random_layout, random_stages, tables

from shardmath.symbolic.recompute import MODES


@pytest.mark.cases(20, 250)
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_stage(draw: Random, variant: str) -> None:
    kernels, implementation = VARIANTS[variant]
    switches = dict.fromkeys(draw.choice(list(MODES.values())), 1)
    method = draw.choice(("each", "uniform", "block")) if "rfull" in switches else "each"
    shape = random_layout(draw, variant) | switches | {"rn": draw.randint(1, 3)}
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


@pytest.mark.cases(3, 20)
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "whole"])  # that has one rank
def test_more_ranks_than_rows_of_keys(draw: Random, variant: str) -> None:
    """Half a row of keys for each rank: the fused projection is shared out by its own rows alone."""
    kernels, implementation = VARIANTS[variant]
    t = draw.choice((4, 8))
    shape = random_layout(draw, variant) | {
        "t": t, "c": 1, "p": 1, "r": 0, "k": 1, "a": t * draw.randint(1, 2), "d": t // 2, "h": t * draw.randint(1, 20),
        "f": t * draw.randint(1, 20), "L": draw.randint(1, 2), "s": 2 * t, "u": 8 * t, "rn": 1,
    }
    assert shape["k"] * shape["d"] % t
    with one_rank(shape, draw):
        model, batch = gpt_model(shape, config(shape), kernels), Batch.of(shape)
        mask = batch.mask if variant == "local" else None
        with Saved() as saved:
            output = forward(model, shape, batch.with_mask(mask))
        found = saved.bytes(model, batch.ids, batch.labels)
    known = values({}, "", **shape) | {"B": shape["b"] * shape["D"]}
    parameters, activation = ledger(implementation, "stage.parameters", "stage.activation", **known)
    assert sum(one.numel() for one in model.parameters()) == parameters
    assert output.requires_grad
    assert found == activation + tables(implementation, {}, known)
