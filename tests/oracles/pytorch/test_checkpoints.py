"""PyTorch's distributed checkpoint as torchtitan uses it, against the ledger: GPUs and copies on the host."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from oracles.instruments.ledger import ledger
from oracles.pytorch.sharded_steps import sharded_model
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from shardmath.symbolic.implementations import TORCHTITAN
from shardmath.symbolic.parallel.legality import fixed_values

COPIED = TORCHTITAN.with_choices(loading="distributed_copied")
_FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def _states(model: Any, optimizer: Any) -> dict[str, Any]:
    """Ask for all that a checkpoint has, as ``ModelWrapper`` and ``OptimizersContainer`` do."""
    return {**get_model_state_dict(model), **get_optimizer_state_dict(model, optimizer, options=_FLAT)}


def _local(states: dict[str, Any]) -> list[torch.Tensor]:
    tensors = (leaf for leaf in tree_leaves(states) if isinstance(leaf, torch.Tensor))
    return [one.to_local() if isinstance(one, DTensor) else one for one in tensors]


@pytest.mark.cases(4, 60)
def test_states_are_made_by_a_step_and_read_in_place(draw: Random) -> None:
    """Each parameter has a number of steps besides, of 4 bytes."""
    heads, ranks = draw.choice((1, 2, 4)), draw.choice((2, 3, 8))
    sizes = {"L": draw.randint(1, 3), "a": heads, "k": heads, "d": 8 * draw.randint(1, 4), "h": 8 * draw.randint(1, 9),
             "f": draw.randint(3, 90), "v": draw.randint(9, 300), "s": 16, "b": 1}
    with sharded_model(sizes, ranks) as (recorder, model), recorder:
        model.to_empty(device="cpu")
        buffers = model.rotation.nbytes
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        states = _states(model, optimizer)
        loading = recorder.peak - buffers
        recorder.peak = recorder.now
        set_model_state_dict(model, states, options=StateDictOptions(strict=False))
        set_optimizer_state_dict(model, optimizer, states, options=_FLAT)
        assert recorder.peak == recorder.now
        kept = recorder.now - buffers
        sizes_written = sum(one.nbytes for one in _local(_states(model, optimizer)))
        parameters = len(optimizer.param_groups[0]["params"])
    letters = {**sizes, **fixed_values(COPIED), "u": sizes["v"], "D": ranks, "B": ranks, "tied": 0}
    wanted, saving, host, weight, gradient, states_kept = ledger(
        COPIED, "stage.loading", "stage.saving", "stage.saved_on_host", "stage.weight", "stage.gradient",
        "stage.optimizer", **letters)
    assert kept == weight + states_kept + 4 * parameters
    assert wanted == saving == loading - 4 * parameters == weight + gradient + states_kept
    assert host == sizes_written - 4 * parameters


def test_a_copy_on_the_host_has_all_bytes() -> None:
    """The stager that ``async_save`` makes copies each storage once; the file is written from the copy."""
    kept = {"weight": torch.zeros(7, 3), "state": torch.zeros(21), "step": torch.zeros(())}
    stager = DefaultStager(StagingOptions(False, False, False, False))
    copies: Any = stager.stage(kept)
    stager.close()
    assert all(copies[name].untyped_storage().nbytes() == one.nbytes and
               copies[name].data_ptr() != one.data_ptr() for name, one in kept.items())
