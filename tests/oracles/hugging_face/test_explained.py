"""From a file ``config.json`` to bytes: what ``shardmath.explain`` says of a model against the model itself."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from oracles.hugging_face.huggingface import FAMILIES, causal_lm, random_shape, token_ids, with_large_vocabulary
from oracles.instruments.live import Live
from oracles.instruments.storages import storages_in
from oracles.instruments.traced import explained

from shardmath.account.configured import configured
from shardmath.models.model import load_model


@pytest.mark.cases(10, 150)
def test_account_of_a_step(draw: Random, tmp_path: Path) -> None:
    """All roles and the total, for a vocabulary so large that the step peaks in the backward pass of the loss."""
    shape = with_large_vocabulary(draw, random_shape(draw))
    model = causal_lm(draw.choice(list(FAMILIES)), shape, "sdpa")
    model.config.save_pretrained(tmp_path)
    checkpointing = draw.random() < 0.5
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    ids, labels = token_ids(shape), token_ids(shape)
    with Live(model, ids, labels) as live:
        output = model(input_ids=ids, labels=labels)
        output.loss.backward()
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    # The embedding's saved ids are counted; labels that the data loader holds on to are not.
    # A step is a number of 4 bytes for each tensor, which torch keeps on the CPU; the ledger does not count it.
    moments = [one for state in optimizer.state.values() for one in state.values() if one.ndim]
    kept = {
        "weight": storages_in(model).bytes(storages_in(list(model.buffers()))),
        "gradient": storages_in([one.grad for one in model.parameters()]).bytes(),
        "optimizer": storages_in(moments).bytes(),
        "input": storages_in(ids).bytes(),
    }

    explanation = explained(configured(
        load_model(tmp_path / "config.json"), "h100-80gb", implementation="huggingface", seq_length=shape["s"],
        micro_batch_size=shape["b"], recompute="full" if checkpointing else "none",
        kernels={"peak": "saved"},
    )).peak
    assert {role: explanation.by_role[role] for role in kept} == kept
    assert explanation.site == "loss_backward"
    assert explanation.total == sum(kept.values()) + live.peak
