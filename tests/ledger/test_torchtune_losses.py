"""torchtune's losses: bytes kept behind the forward pass and the most in each pass, counted by torchtune itself."""

from __future__ import annotations

import pytest
from counted import table, values
from oracles.instruments.traced import evaluated

from shardmath.symbolic.choices import TORCHTUNE, TORCHTUNE_CHUNKS, TORCHTUNE_LINEAR
from shardmath.symbolic.implementations import HUGGINGFACE

COUNTED = table("torchtune_losses")
TRAINED_IN_CHUNKS = [row for row in COUNTED if row["loss"] in TORCHTUNE_CHUNKS and row["head"] == "trained"]
#: The layers in front of the head, of which nothing is counted here.
BESIDE = {"a": 2, "k": 2, "d": 16, "f": 32, "L": 1}
MOMENTS = {"kept": "after_forward", "forward": "loss_forward", "backward": "loss_backward"}
#: A few numbers of 8 bytes: sums of losses, their gradients, and a gradient for every token where kernels have one.
SCALARS, OF_A_TOKEN = 64, 32


@pytest.mark.slow
@pytest.mark.parametrize("row", COUNTED, ids=lambda row: "-".join(list(row.values())[:6]))
def test_the_most_in_each_pass(row: dict[str, str]) -> None:
    loss, trained = row["loss"], row["head"] == "trained"
    adapters = {} if trained else {"adapters": "q_v"}
    component = "fused_head" if loss in TORCHTUNE_LINEAR else "loss"
    kept = [f"{component}.saved", f"{component}.input"]
    names = [*kept, *(f"stage.{component}.{moment}" for moment in MOMENTS.values())]
    known = values(row, "h u s b", **BESIDE)
    number = evaluated(HUGGINGFACE.with_choices(loss=loss, **adapters), names, known)
    tokens = known["s"] * known["b"]
    head_input = 2 * tokens * known["h"] if trained and component == "loss" else 0
    base = number[f"{component}.saved"] + number.get(f"{component}.input", 0) + head_input
    for column, moment in MOMENTS.items():
        few = SCALARS if column == "kept" else SCALARS + OF_A_TOKEN * tokens
        assert abs(int(row[column]) - base - number[f"stage.{component}.{moment}"]) <= few, column


def test_every_loss_is_counted() -> None:
    assert {row["loss"] for row in COUNTED} == {*TORCHTUNE, *TORCHTUNE_LINEAR}


@pytest.mark.slow
@pytest.mark.parametrize("row", TRAINED_IN_CHUNKS, ids=lambda row: "-".join(list(row.values())[:6]))
def test_gradients_of_the_matrix_from_chunks(row: dict[str, str]) -> None:
    """Where they are more than what the loss has: logits of few tokens."""
    number = evaluated(HUGGINGFACE.with_choices(loss=row["loss"], peak="torch"), ["stage.loss.head_backward"],
                       values(row, "h u s b", **BESIDE))["stage.loss.head_backward"]
    known = values(row, "h u s b", **BESIDE)
    tokens = known["s"] * known["b"]
    alive = number + 2 * tokens * known["h"]
    assert int(row["whole"]) <= max(int(row["backward"]), alive) + SCALARS + OF_A_TOKEN * tokens
