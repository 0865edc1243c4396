"""Dense families in DeepSpeed's ZeRO against bytes counted in it, each from its config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from counted import table, values
from families import read_config
from oracles.extent import FULL
from oracles.instruments.traced import evaluated

from shardmath.configuration.choosing import choices_of
from shardmath.input.parameters import model_values
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parallel.uncounted import refuse_impossible
from shardmath.symbolic.parameters import BY_NAME

COUNTED = table("deepspeed_families")
SAVED = ("stage.activation", "stage.buffer", "stage.after_forward", "stage.input")
#: What DeepSpeed has beside the model when the forward pass ends, which is there before or counted at most.
BESIDE = tuple(f"stage.{name}.after_forward" for name in ("cut_gradients", "lasting_bucket", "gathered_ahead"))
#: Families without ``ORACLES=full``: scores, logits, norms, activations and positions of several kinds.
SOME = ("apertus", "bloom", "cohere", "gemma2", "gemma4_text", "olmo2")
LIMITS = {"bk": 10**6, **dict.fromkeys(("pf", "mr", "ml"), 0)}


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({row["family"] for row in COUNTED}) if FULL else SOME)
def test_what_a_rank_keeps_and_saves_is_counted(family: str, tmp_path: Path) -> None:
    for row in (row for row in COUNTED if row["family"] == family):
        counted, ids = _counted(row, tmp_path), 8 * int(row["s"]) * int(row["b"])
        assert counted["stage.all_parameters"] == int(row["elements"]), row
        assert counted["stage.weight"] == int(row["weights"]), row
        assert counted["stage.optimizer"] == int(row["states"]), row
        gradients = counted["stage.gradient"]  # and in stages 1 and 2 the rest of those that the rank's part cuts
        assert gradients <= int(row["gradients"]) <= gradients + counted[BESIDE[0]], row
        saved = sum(counted[name] for name in SAVED) - sum(counted[name] for name in BESIDE)
        assert saved - ids == int(row["saved"]), row


def _counted(row: dict[str, str], folder: Path) -> dict[str, Any]:
    model, stage, ranks = read_config(folder, json.loads(row["config"])), int(row["stage"]), int(row["ranks"])
    chosen = {**choices_of("huggingface", model), "data_parallel": "deepspeed", "precision": "mixed"}
    if not (row["attention"] == "sdpa" and "sdpa" in chosen.get("attention", "")):  # Falcon has kernels of its own
        chosen["attention"] = row["attention"]
    shape = {BY_NAME[name].letter: value for name, value in model_values(model).items()}
    known = {
        **values(row, "s b rfull", D=ranks, N=ranks, w=2, pt=int(row["threshold"]), **LIMITS), **shape,
        **{f"zero{number}": int(stage >= number) for number in (1, 2, 3)}}
    names = ("stage.all_parameters", "stage.weight", "stage.optimizer", "stage.gradient", *SAVED, *BESIDE)
    return evaluated(HUGGINGFACE.with_choices(**chosen), names, known)


def test_gathered_weights_that_saved_tensors_view_are_refused() -> None:
    with pytest.raises(ValueError, match="linear layers of Falcon, whose saved tensors are views"):
        refuse_impossible({**HUGGINGFACE.choices, "data_parallel": "deepspeed", "precision": "mixed",
                           "value": "picked", "attention": "eager"})
