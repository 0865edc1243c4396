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
#: Numbers of 8 bytes that a GPU has on its host: the program's own factor, and the divisor of a loss that makes logits.
ON_HOST = {component: 8 * numbers for component, numbers in {"loss": 1, "fused_head": 2}.items()}
#: Losses and gradients of few numbers, and bytes of a token that a kernel frees early, or makes late, in a pass.
SCALARS = 32
OF_A_TOKEN = {
    ("torchtune", "backward"): 8, ("torchtune_compiled", "forward"): 16, ("torchtune_chunks", "backward"): 1,
    ("torchtune_chunks_compiled", "forward"): 25, ("torchtune_chunks_compiled", "backward"): 1,
    ("torchtune_linear_compiled", "backward"): 2,
}
#: Labels and sums of a token that are gone while the head's matrix gets its gradient.
LEFT_OF_A_TOKEN = 16
#: A trained head is one of all that is trained, or a copy that adapters train.
HEADS = {"trained": ({}, {"adapters": "q_v", "adapter_ends": "copies"}), "frozen": ({"adapters": "q_v"},)}


@pytest.mark.slow
@pytest.mark.parametrize("row", COUNTED, ids=lambda row: "-".join(list(row.values())[:6]))
def test_the_most_in_each_pass(row: dict[str, str]) -> None:
    """Bytes kept behind the loss are equal; in a pass a few numbers of a token may be less or more."""
    loss, known = row["loss"], values(row, "h u s b", **BESIDE)
    component = "fused_head" if loss in TORCHTUNE_LINEAR else "loss"
    tokens = known["s"] * known["b"]
    names = [f"{component}.saved", f"{component}.input", *(f"stage.{component}.{each}" for each in MOMENTS.values())]
    for adapters in HEADS[row["head"]][:2 if component == "fused_head" else 1]:
        number = evaluated(HUGGINGFACE.with_choices(loss=loss, **adapters), names, known)
        head_input = 2 * tokens * known["h"] if row["head"] == "trained" and component == "loss" else 0
        base = number[f"{component}.saved"] + number.get(f"{component}.input", 0) + head_input
        for column, moment in MOMENTS.items():
            few = 0 if column == "kept" else SCALARS + OF_A_TOKEN.get((loss, column), 0) * tokens
            counted = int(row[column]) - ON_HOST[component]
            assert abs(base + number[f"stage.{component}.{moment}"] - counted) <= few, column


def test_every_loss_is_counted() -> None:
    assert {row["loss"] for row in COUNTED} == {*TORCHTUNE, *TORCHTUNE_LINEAR}


@pytest.mark.slow
@pytest.mark.parametrize("row", TRAINED_IN_CHUNKS, ids=lambda row: "-".join(list(row.values())[:6]))
def test_gradients_of_the_matrix_from_chunks(row: dict[str, str]) -> None:
    """With logits of few tokens they are more than all that the loss has, and the most of both passes."""
    known, backward, whole = values(row, "h u s b", **BESIDE), int(row["backward"]), int(row["whole"])
    number = evaluated(HUGGINGFACE.with_choices(loss=row["loss"], peak="torch"), ["stage.loss.head_backward"], known)
    tokens = known["s"] * known["b"]
    alive = number["stage.loss.head_backward"] + 2 * tokens * known["h"]
    few = SCALARS + LEFT_OF_A_TOKEN * tokens
    if whole > backward:
        assert abs(alive - whole) <= few
    else:
        assert int(alive) <= whole + few
