"""Losses of preference training against what the trainers' own functions left alive and wrote, in drawn cases."""

from __future__ import annotations

import pytest
from counted import table, values
from oracles.traced import evaluated

from shardmath.symbolic.implementations import HUGGINGFACE

pytestmark = pytest.mark.slow

COUNTED = table("preference")
#: By library and trainer, the loss on fp32 logits; CPO of TRL is ORPO's, and SimPO has no cross entropy there.
LOSSES = {
    ("llamafactory", "kto"): "log_probs_kto", ("llamafactory", "orpo"): "log_probs", ("llamafactory", "simpo"):
    "log_probs", ("trl", "kto"): "trl_kto", ("trl", "orpo"): "trl_orpo", ("trl", "cpo"): "trl_orpo",
    ("trl", "simpo"): "trl_simpo", ("swift", "kto"): "swift_kto", ("swift", "orpo"): "trl_orpo",
    ("swift", "cpo"): "trl_orpo", ("swift", "simpo"): "trl_orpo",
}
KINDS = sorted({(row["library"], row["trainer"], row["logits"], row["reference"]) for row in COUNTED})


@pytest.mark.parametrize(("library", "trainer", "logits", "reference"), KINDS)
def test_losses(library: str, trainer: str, logits: str, reference: str) -> None:
    """Numbers of sequences, and few of a token, which no row has, are less than what a logit of one word weighs."""
    loss = LOSSES[library, trainer] + ("_16" if logits == "bf16" else "")
    implementation = HUGGINGFACE.with_choices(loss=loss, reference=reference)
    moments = [f"stage.loss.{moment}" for moment in ("after_forward", "loss_forward", "loss_backward")]
    for row in COUNTED:
        if (row["library"], row["trainer"], row["logits"], row["reference"]) != (library, trainer, logits, reference):
            continue
        known = values(row, "h a k d f u L tied s b")
        counted = evaluated(implementation, ["stage.activation", "stage.buffer", *moments], known)
        few = 8 + 64 * known["b"] + (160 if trainer == "kto" else 64) * known["s"] * known["b"]
        for name, column in zip(moments, ("after", "forward", "backward"), strict=True):
            expected = counted["stage.activation"] + counted["stage.buffer"] + counted.get(name, 0)
            assert abs(int(row[column]) - expected) <= few, (row, column, int(row[column]) - expected)
