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


@pytest.mark.parametrize(("arguments", "words"), [
    ({"schedule": "zbv", "recompute": "full"}, "split backward"),
    ({"schedule": "interleaved", "virtual_pipeline": 4}, "at most 3"),
    ({"schedule": "zbv", "virtual_pipeline": 3}, "must be 2"),
    ({"schedule": "zbv", "implementation": "megatron"}, "must be one of 1f1b, interleaved"),
])
def test_what_is_not_counted_is_refused(arguments: dict[str, Any], words: str) -> None:
    asked: dict[str, Any] = {"implementation": "torchtitan", "pipeline_parallel": 4, "num_gpus": 64, **arguments}
    with pytest.raises(InputError, match=words):
        shardmath.explain("llama-3.1-8b", "h100-80gb", **asked)
