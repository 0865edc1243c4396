"""Megatron-Core while it loads a sharded checkpoint, against the ledger: gate and up projections are joined anew."""

from __future__ import annotations

from random import Random

import pytest
from counted import MEGATRON_CPU
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.megatron_core.megatron_cpu import config, gpt_model, one_rank
from oracles.megatron_core.megatron_data import adamw, data_parallel
from oracles.megatron_core.megatron_experts import model_of, settings_of, whole_linears
from oracles.megatron_core.megatron_loading import describes, load
from oracles.megatron_core.test_megatron_expert_buffers import random_layout as layout_with_experts
from oracles.megatron_core.test_megatron_optimizer import random_layout


@pytest.mark.cases(24, 300)
@pytest.mark.parametrize("layers", ["dense", "experts"])
def test_gate_and_up_are_joined(draw: Random, layers: str) -> None:
    """States that are shared out lie in buckets; whole ones are laid out as weights are, and joined too."""
    shape = layout_with_experts(draw) if layers == "experts" else random_layout(draw)
    distributed = bool(shape["zero1"])
    with one_rank(shape, draw), whole_linears():
        settings = settings_of(shape, "allgather") if layers == "experts" else config(shape)
        make = model_of if layers == "experts" else gpt_model
        models = [make(shape, settings, chunk=chunk if shape["V"] > 1 else None) for chunk in range(shape["V"])]
        with Live(*models) as live:
            wrapped = [data_parallel(settings, model, distributed=distributed, gradient_bytes=shape["w"])
                       for model in models]
            optimizer = adamw(*wrapped, distributed=distributed)
            optimizer.step()
            if not describes(optimizer):
                return  # tiny models alone have such ranks
            made = load(wrapped, optimizer, live)
    implementation = MEGATRON_CPU.with_choices(
        layers=layers, heads="latent" if shape.get("lk") else "grouped", biases="linear" if "lbias" in shape else "qkv",
        schedule="interleaved" if shape["V"] > 1 else "1f1b",
    )
    joined, loading, *kept = ledger(
        implementation, "stage.joined", "stage.loading", "stage.weight", "stage.gradient", "stage.optimizer",
        **shape, B=shape["p"] * shape["D"])
    assert made == joined == loading - sum(kept)
