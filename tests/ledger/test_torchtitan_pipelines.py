"""torchtitan's pipelines against bytes counted in its own model: whole steps, rank by rank, of all schedules."""

from __future__ import annotations

from typing import Any

import pytest
from counted import DEFAULTS, table

import shardmath
from shardmath.errors import InputError
from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import TORCHTITAN
from shardmath.symbolic.parallel.legality import fixed_values

pytestmark = pytest.mark.slow

CHOICES = {"none": {}, "each": {}, "ops": {"recompute_saves": "ops"}}
EXACT = ("1f1b", "gpipe", "interleaved")
#: The moments inside of half a backward pass are not counted one by one: how far the sums may be off (per cent).
SPLIT_PER_CENT = {"zero_bubble": 3, "zbv": 2, "dualpipev": 2}


def total(row: dict[str, str]) -> int:
    implementation = TORCHTITAN.with_choices(
        pipeline="torch", schedule=row["schedule"], **CHOICES[row["recompute"]])
    ranks = int(row["N"]) * int(row["R"])
    known = {**DEFAULTS, **{letter: int(row[letter]) for letter in "hakdfLsbprVR"}, "u": int(row["v"]), "D": ranks}
    known |= {"rfull": int(row["recompute"] != "none"), **fixed_values(implementation), "w": 4}
    known["B"] = known["b"] * ranks * int(row["m"])
    return int(evaluate(tuple(build(implementation).terms.values()), known)["stage.total"])


@pytest.mark.parametrize("schedule", [*EXACT, *SPLIT_PER_CENT])
def test_peaks_of_whole_steps(schedule: str) -> None:
    rows = [row for row in table("torchtitan_pipelines") if row["schedule"] == schedule]
    assert rows
    for row in rows:
        if schedule in EXACT:
            assert total(row) == int(row["peak"]), row
        else:
            assert abs(total(row) / int(row["peak"]) - 1) * 100 < SPLIT_PER_CENT[schedule], row


def test_uneven_stages_are_those_of_even_models() -> None:
    """A rank knows nothing of other stages: it keeps what it does where all have as many layers, which is counted."""
    uneven = TORCHTITAN.with_choices(pipeline="torch", stages="uneven")
    even = TORCHTITAN.with_choices(pipeline="torch")
    known = {**DEFAULTS, "h": 64, "a": 4, "k": 2, "d": 16, "f": 96, "u": 128, "s": 32, "b": 2, "p": 4, "D": 4, "rn": 1,
             "B": 64, **fixed_values(even), "w": 4}
    for rank, layers in enumerate((1, 2, 2, 1)):
        apart = {**known, "r": rank, "L": 6, "eemb": 1, "eloss": 1}
        terms = evaluate(tuple(build(uneven).terms.values()), apart)
        alike = evaluate(tuple(build(even).terms.values()), {**known, "r": rank, "L": 4 * layers})
        assert terms["stage.total"] == alike["stage.total"], rank


def test_listed_stages_are_the_uneven_ones() -> None:
    asked: dict[str, Any] = {"implementation": "torchtitan", "pipeline_parallel": 4, "num_gpus": 16, "seq_length": 4096,
                             "global_batch_size": 64}
    model = shardmath.Model(**{**shardmath.load_model("llama-3.1-8b").model_dump(), "num_layers": 30})
    listed = shardmath.explain(model, "h100-80gb", pipeline_layout="7,8,8,7", **asked)
    uneven = shardmath.explain(model, "h100-80gb", account_for_embedding=1, account_for_loss=1, **asked)
    assert [rank.total for rank in listed.ranks] == [rank.total for rank in uneven.ranks]


@pytest.mark.parametrize(("arguments", "words"), [
    ({"schedule": "zbv", "recompute": "full"}, "split backward"),
    ({"schedule": "interleaved", "virtual_pipeline": 4}, "at most 3"),
    ({"schedule": "zbv", "virtual_pipeline": 3}, "must be 2"),
    ({"schedule": "gpipe", "pipeline_layout": "8,9,8,7"}, "another schedule than 1F1B"),
    ({"schedule": "zbv", "account_for_loss": 1}, "uneven stages in another schedule"),
    ({"schedule": "zbv", "implementation": "megatron"}, "must be one of 1f1b, interleaved"),
])
def test_what_is_not_counted_is_refused(arguments: dict[str, Any], words: str) -> None:
    asked: dict[str, Any] = {"implementation": "torchtitan", "pipeline_parallel": 4, "num_gpus": 64, **arguments}
    with pytest.raises(InputError, match=words):
        shardmath.explain("llama-3.1-8b", "h100-80gb", **asked)
