"""Whole parameters that Megatron-Core deals to its data-parallel ranks (``--optimizer dist_muon``), against the ledger.

Megatron-Core itself says which parameters are Muon's, and deals them. Muon is PyTorch's: Megatron-Core's own needs a
package for GPUs, and keeps one momentum of the same size. Weights that are FP8 have names of their layers here: to the
optimizer they are of 16 bits, as Transformer Engine's are, and their gradients have a buffer of their own.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from megatron.core import parallel_state
from megatron.core.distributed import distributed_data_parallel, param_and_grad_buffer
from megatron.core.optimizer import OptimizerConfig, muon
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.megatron_core import test_megatron_expert_buffers
from oracles.megatron_core.megatron_cpu import config, one_rank
from oracles.megatron_core.megatron_data import data_parallel
from oracles.megatron_core.megatron_experts import model_of, settings_of, whole_linears
from oracles.megatron_core.test_megatron_optimizer import chunks_of, random_layout
from torch.optim import Muon

from shardmath.symbolic.implementations import MEGATRON, Implementation

SCHEDULES = {False: "1f1b", True: "interleaved"}
FP8 = {"fp8": "current", "fp8_weights": "primary", "peak": "saved"}


class OfPyTorch(Muon):
    """PyTorch's Muon, which leaves out what Megatron-Core's asks for besides, and remembers all its parameters."""

    def __init__(self, groups: Any, lr: float, **_: Any) -> None:
        super().__init__(groups, lr=lr)
        self.matrices = {id(one) for group in self.param_groups for one in group["params"]}


def quantised(models: list[Any], monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Let Megatron-Core take the weights of linear layers for Transformer Engine's FP8 ones; say which these are."""
    own = {id(one) for model in models for name, one in model.named_parameters()
           if one.dim() > 1 and name.endswith(".weight") and (".linear_" in name or ".eh_proj." in name)}
    for module in (distributed_data_parallel, param_and_grad_buffer):
        monkeypatch.setattr(module, "is_float8tensor", lambda one: id(one) in own)
    return own


def check_weights(wrapped: list[Any], own: set[int], shape: dict[str, int], chosen: Implementation) -> None:
    """Compare buffers of gradients, and weights that are FP8, with the ledger's groups of parameters."""
    sizes = ledger(chosen, *(f"stage.{name}parameters" for name in ("", "expert_", "fp8_", "expert_fp8_")), **shape)
    of_fp8 = sum(one.numel() for model in wrapped for one in model.parameters() if id(one) in own)
    buffers = [one for model in wrapped for one in (*model.buffers, *model.expert_parallel_buffers)]
    in_fp8 = sum(one.grad_data.numel() for one in buffers if one.param_dtype == torch.uint8)
    assert in_fp8 == of_fp8 == sum(sizes[2:])
    assert sum(one.grad_data.numel() for one in buffers) - in_fp8 == sum(sizes[:2])


def check_step(
    wrapped: list[Any], replica: int, shape: dict[str, int], chosen: Implementation, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Step, and compare bytes of the drawn rank with what was dealt to it, and the ledger with the fullest rank."""
    monkeypatch.setattr(muon, "HAVE_EMERGING_OPTIMIZERS", True)
    monkeypatch.setattr(muon, "TensorParallelMuon", OfPyTorch)
    parameters = [one for model in wrapped for one in model.parameters()]
    with Live(parameters, [one.main_grad for one in parameters]) as live:
        alive = []
        # Fake ranks take pieces of one size only.
        monkeypatch.setattr(torch.distributed, "all_gather", lambda *_, **__: alive.append(live.now))
        optimizer = muon.get_megatron_muon_optimizer(
            OptimizerConfig(lr=1e-3, bf16=True, params_dtype=torch.bfloat16, clip_grad=0.0), wrapped,
            use_gloo_process_groups=False, layer_wise_distributed_optimizer=True,
        )
        optimizer.step()
        alive.append(live.now)
    matrices = optimizer.chained_optimizers[0].optimizer.matrices
    apart = [[one for one in parameters if getattr(one, "allreduce", True) is not expert] for expert in (False, True)]
    dealt = [optimizer.dp_cp_params_list or [apart[0]], optimizer.expt_dp_params_list or [apart[1]]]
    elements, states = ([[sum(size(one) for one in own) for own in ranks] for ranks in dealt] for size in (
        lambda one: one.numel(), lambda one: (8 if id(one) in matrices else 12) * one.numel()))

    def both(sizes: list[list[int]], rank: int) -> int:
        """Sum sizes of a rank of the stage, which has a place among the ranks of each of both lists."""
        widths = shape["t"], shape.get("e", 1) * shape.get("et", 1)
        return sum(ranks[min(rank // width, len(ranks) - 1)] for ranks, width in zip(sizes, widths, strict=True))

    stage = range(shape["t"] * shape["c"] * shape["D"])
    here = replica * shape["t"] + parallel_state.get_tensor_model_parallel_rank()
    places = replica, parallel_state.get_expert_data_parallel_rank() if len(dealt[1]) > 1 else 0
    own = [ranks[min(place, len(ranks) - 1)] for ranks, place in zip(dealt, places, strict=True)]
    copy = 4 * (shape["w"] == 2)
    scales = 4 * len(optimizer.chained_optimizers)  # of 1.0
    counters = 4 * sum(id(one) not in matrices for mine in own for one in mine)
    kept = both(states, here) + copy * both(elements, here) + counters + scales
    rows = [sum(one.numel() for one in mine) * (len(mine) > 1) for mine in own]  # a single parameter is its own row
    assert alive == [*(kept + 2 * (sum(ranks) + row) for ranks, row in zip(elements, rows, strict=True)
                       if len(ranks) > 1), kept]

    most, copies, gathered = ledger(
        chosen, "stage.optimizer", "stage.gradient_copies.optimizer_step", "stage.gathered_updates.optimizer_step",
        **shape, B=shape["p"] * shape["D"],
    )
    assert most == max(both(states, rank) for rank in stage)
    assert copies == copy * max(both(elements, rank) for rank in stage)
    assert gathered == 2 * max((sum(ranks) + max(ranks)) * (len(ranks) > 1) for ranks in elements)


@pytest.mark.cases(24, 400)
def test_fullest_rank(draw: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """States and copies of the drawn rank are those in its memory; all ranks' follow from what was dealt to them."""
    shape = random_layout(draw) | {"zero1": 0}
    if draw.random() < 0.3:  # kinds of one size
        shape |= {"h": shape["a"] * shape["d"], "f": shape["t"] * shape["d"], "u": shape["t"] * shape["d"]}
    with one_rank(shape, draw) as replica:
        settings = config(shape)
        models = chunks_of(shape, settings)
        own = quantised(models, monkeypatch) if shape["V"] == 1 and draw.random() < 0.7 else None
        wrapped = [data_parallel(settings, model, distributed=False, gradient_bytes=shape["w"]) for model in models]
        chosen = MEGATRON.with_choices(optimizer="dist_muon", schedule=SCHEDULES[shape["V"] > 1])
        if own is not None:
            chosen = chosen.with_choices(**FP8)
            check_weights(wrapped, own, shape, chosen)
        check_step(wrapped, replica, shape, chosen, monkeypatch)


@pytest.mark.cases(24, 300)
def test_fullest_rank_with_experts(draw: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routed experts are dealt to the ranks that hold the same ones, all else to all data-parallel ranks."""
    shape = test_megatron_expert_buffers.random_layout(draw) | {"zero1": 0}
    with one_rank(shape, draw) as replica, whole_linears():
        settings = settings_of(shape, "allgather")
        models = [model_of(shape, settings, chunk if shape["V"] > 1 else None) for chunk in range(shape["V"])]
        own = quantised(models, monkeypatch) if shape["V"] == 1 and shape["lk"] else None
        wrapped = [data_parallel(settings, model, distributed=False, gradient_bytes=shape["w"]) for model in models]
        chosen = MEGATRON.with_choices(
            optimizer="dist_muon", layers="experts", heads="latent" if shape["lk"] else "grouped", biases="linear",
            schedule=SCHEDULES[shape["V"] > 1])
        if own is not None:
            chosen = chosen.with_choices(**FP8)
            check_weights(wrapped, own, shape, chosen)
        check_step(wrapped, replica, shape, chosen, monkeypatch)
