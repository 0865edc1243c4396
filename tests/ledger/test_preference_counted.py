"""Losses of preference training against what the trainers' own functions left alive and wrote, in drawn cases."""

from __future__ import annotations

import pytest
from counted import table, values
from oracles.instruments.traced import evaluated, summed_rows

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


#: Rows by what was counted; those of 16-bit logits end in _16.
NUMBERS = {
    "int64": ("embedding.ids", "loss.places_of_labels", "loss.better_labels", "loss.rolled_labels"),
    "bool": ("loss.left_out", "loss.left_out_of_all"), "sums": ("loss.logit_sums", "loss.all_sums"),
    "total_weight": ("loss.better_weight",),
}


@pytest.mark.parametrize("row", table("preference_kept"),
                         ids=lambda row: f"{row['library']} {row['trainer']} {row['logits']}")
def test_numbers_of_tokens(row: dict[str, str]) -> None:
    """Labels, masks and sums, but for two numbers of each sequence, which no row has.

    Of a single pair, which is not in the table, labels of the better sequence are a view of those of both.
    """
    loss = LOSSES[row["library"], row["trainer"]] + ("_16" if row["logits"] == "bf16" else "")
    implementation, known = HUGGINGFACE.with_choices(loss=loss), values(row, "h a k d f u L tied s b")
    for column, names in NUMBERS.items():
        kept = summed_rows(implementation, [*names, *(f"{name}_16" for name in names)], known)
        few = {"int64": 16, "bool": 1}.get(column, 0) * known["b"]
        assert abs(int(row[column]) - kept) <= few, column
