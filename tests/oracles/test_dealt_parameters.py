"""Whole parameters that Megatron-Core deals to its data-parallel ranks (``--optimizer dist_muon``), against the ledger.

Muon itself is PyTorch's: Megatron-Core's own needs a package for GPUs, and keeps one momentum of the same size.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from megatron.core.optimizer import OptimizerConfig
from megatron.core.optimizer.layer_wise_optimizer import LayerWiseDistributedOptimizer
from megatron.core.process_groups_config import ProcessGroupCollection
from oracles.ledger import ledger
from oracles.live import Live
from oracles.megatron_cpu import config, one_rank
from oracles.megatron_data import data_parallel
from oracles.test_megatron_optimizer import chunks_of, random_layout
from torch.optim import AdamW, Muon

from shardmath.symbolic.implementations import MEGATRON


def is_matrix(parameter: Any) -> bool:
    """Tell which parameters Megatron-Core gives to Muon (``get_megatron_muon_optimizer``)."""
    return parameter.dim() == 2 and not getattr(parameter, "is_embedding_or_output_parameter", False)


@pytest.mark.cases(24, 400)
def test_fullest_rank(draw: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """States and copies of the drawn rank are those in its memory; all ranks' follow from what was dealt to them."""
    shape = random_layout(draw) | {"zero1": 0}
    if draw.random() < 0.3:  # kinds of one size
        shape |= {"h": shape["a"] * shape["d"], "f": shape["t"] * shape["d"], "u": shape["t"] * shape["d"]}
    with one_rank(shape, draw) as replica:
        settings = config(shape)
        wrapped = [data_parallel(settings, model, distributed=False, gradient_bytes=shape["w"])
                   for model in chunks_of(shape, settings)]
        parameters = [one for model in wrapped for one in model.parameters()]
        matrices, others = (
            [one for one in parameters if is_matrix(one) is wanted] for wanted in (True, False))
        with Live(parameters, [one.main_grad for one in parameters]) as live:
            alive = []
            # Fake ranks take pieces of one size only.
            monkeypatch.setattr(torch.distributed, "all_gather", lambda *_, **__: alive.append(live.now))
            optimizer = LayerWiseDistributedOptimizer(
                [Muon(matrices), AdamW(others)],
                OptimizerConfig(lr=1e-3, bf16=True, params_dtype=torch.bfloat16, clip_grad=0.0),
                ProcessGroupCollection.use_mpu_process_groups(["dp_cp", "expt_dp", "mp", "tp"]),
            )
            optimizer.step()
            alive.append(live.now)
        dealt = optimizer.dp_cp_params_list or [parameters]
    elements = [sum(one.numel() for one in own) for own in dealt]
    states = [sum((8 if is_matrix(one) else 12) * one.numel() for one in own) for own in dealt]
    counters, copy = 4 * sum(not is_matrix(one) for one in dealt[replica]), 4 * (shape["w"] == 2)
    kept = states[replica] + copy * elements[replica] + counters + 2 * 4  # and a scale of 1.0 in both optimizers
    in_a_row = elements[replica] * (len(dealt[replica]) > 1)  # a single parameter is its own row
    assert alive == [*[kept + 2 * (sum(elements) + in_a_row)] * (len(dealt) > 1), kept]

    chosen = MEGATRON.with_choices(
        optimizer="dist_muon", schedule="interleaved" if shape["V"] > 1 else "1f1b",
    )
    most, largest, copies, gathered = ledger(
        chosen, "stage.optimizer", "stage.shard_elements", "stage.gradient_copies.optimizer_step",
        "stage.gathered_updates.optimizer_step", **shape, B=shape["p"] * shape["D"],
    )
    assert (most, largest, copies) == (max(states), max(elements), copy * max(elements))
    assert gathered == 2 * (len(dealt) > 1) * (sum(elements) + max(elements))
