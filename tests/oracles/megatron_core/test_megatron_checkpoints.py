"""Megatron-Core's sharded checkpoint against the ledger.

While it is loaded gate and up projections are joined anew; while it is saved a host keeps what each rank writes.
"""

from __future__ import annotations

from math import ceil
from random import Random
from typing import Any

import pytest
from counted import MEGATRON_CPU
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.megatron_core.megatron_checkpoints import describes, load, shards, written
from oracles.megatron_core.megatron_cpu import config, gpt_model, one_rank
from oracles.megatron_core.megatron_data import adamw, data_parallel
from oracles.megatron_core.megatron_experts import model_of, settings_of, whole_linears
from oracles.megatron_core.test_megatron_expert_buffers import random_layout as layout_with_experts
from oracles.megatron_core.test_megatron_optimizer import random_layout

from shardmath.symbolic.implementations import Implementation


class _Rank(Random):
    """Draws of ``one_rank``: this of the ranks with other data, and the first of those with other parts of tensors."""

    def __init__(self, replica: int) -> None:
        super().__init__()
        self._drawn = [0, replica]

    def randrange(self, *_: Any, **__: Any) -> int:
        """Return the place of the rank."""
        return self._drawn.pop()


def _made(shape: dict[str, int], layers: str) -> tuple[list[Any], Any]:
    """Return the settings of a rank and its chunks of a model."""
    settings = settings_of(shape, "allgather") if layers == "experts" else config(shape)
    make = model_of if layers == "experts" else gpt_model
    return [make(shape, settings, chunk=chunk if shape["V"] > 1 else None) for chunk in range(shape["V"])], settings


def _implementation(shape: dict[str, int], layers: str) -> Implementation:
    return MEGATRON_CPU.with_choices(
        layers=layers, heads="latent" if shape.get("lk") else "grouped", biases="linear" if "lbias" in shape else "qkv",
        schedule="interleaved" if shape["V"] > 1 else "1f1b",
    )


@pytest.mark.cases(24, 300)
@pytest.mark.parametrize("layers", ["dense", "experts"])
def test_gate_and_up_are_joined(draw: Random, layers: str) -> None:
    """States that are shared out lie in buckets; whole ones are laid out as weights are, and joined too."""
    shape = layout_with_experts(draw) if layers == "experts" else random_layout(draw)
    distributed = bool(shape["zero1"])
    with one_rank(shape, draw), whole_linears():
        models, settings = _made(shape, layers)
        with Live(*models) as live:
            wrapped = [data_parallel(settings, model, distributed=distributed, gradient_bytes=shape["w"])
                       for model in models]
            optimizer = adamw(*wrapped, distributed=distributed)
            optimizer.step()
            if not describes(optimizer):
                return  # tiny models alone have such ranks
            made = load(wrapped, optimizer, live)
    joined, loading, *kept = ledger(
        _implementation(shape, layers), "stage.joined", "stage.loading", "stage.weight", "stage.gradient",
        "stage.optimizer", **shape, B=shape["p"] * shape["D"])
    assert made == joined == loading - sum(kept)


@pytest.mark.cases(6, 100)
@pytest.mark.parametrize("layers", ["dense", "experts"])
def test_a_host_keeps_what_a_rank_writes(draw: Random, layers: str) -> None:
    """No rank writes more, and the fullest no less than the mean of all; the summand for a last tensor is left out."""
    shape = layout_with_experts(draw) if layers == "experts" else random_layout(draw)
    shape["D"] = min(shape["D"], 6)
    shape["tied"] *= 1 - shape.get("mtp", 0)  # with further predictions Megatron-Core describes no tied head
    of_ranks, ranks = [], shape["c"] * shape["D"]
    for replica in range(ranks):
        with one_rank(shape, _Rank(replica)), whole_linears():
            models, settings = _made(shape, layers)
            wrapped = [data_parallel(settings, model, distributed=bool(shape["zero1"]), gradient_bytes=shape["w"])
                       for model in models]
            optimizer = adamw(*wrapped, distributed=bool(shape["zero1"]))
            optimizer.step()
            if not describes(optimizer):
                return  # tiny models alone have such ranks
            with Live(*models) as live:
                of_ranks.append(shards(wrapped, optimizer))
            assert live.peak == 0 or any(one.numel() % 64 for one in models[0].parameters())
            sizes = written(of_ranks) if replica == ranks - 1 else []
    saved, saving, *kept = ledger(
        _implementation(shape, layers), "stage.saved_on_host", "stage.saving", "stage.weight", "stage.gradient",
        "stage.optimizer", **shape, B=shape["p"] * shape["D"])
    assert saving == sum(kept)
    assert ceil(sum(sizes) / ranks) <= max(sizes) <= saved
