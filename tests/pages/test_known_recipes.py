"""docs/known-to-run.md is fresh; few recipes are refused, and one that ran and is out of memory has a cause."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from shardmath.account.judged import OUT
from validation import known_recipes

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def test_the_page_is_fresh() -> None:
    assert (ROOT / "docs" / "known-to-run.md").read_text(encoding="utf-8") == known_recipes.page()


def test_every_recipe_has_a_verdict() -> None:
    with (ROOT / "tests" / "data" / "known_to_run.csv").open(newline="") as table:
        names = [row["id"] for row in csv.DictReader(table)]
    assert [item.row["id"] for item in known_recipes.verdicts()] == names
    counts = Counter(item.rule_80 for item in known_recipes.verdicts())
    assert counts == {"fits": 74, "uncertain": 32, "refused": 27}


def test_few_recipes_of_text_decoders_are_refused() -> None:
    """All that are refused but one are hybrid models, models of images and a diffusion model."""
    others = (*known_recipes.OTHER_MODELS,)
    text = [item for item in known_recipes.verdicts() if not item.row["model"].startswith(others)]
    refused = [item.row["id"] for item in text if item.verdict == known_recipes.REFUSED]
    assert (len(text), len(refused)) == (107, 1)
    assert len(refused) / len(text) <= 0.05


def test_what_ran_and_is_out_of_memory_has_a_cause() -> None:
    assert list(known_recipes.out_of_memory_without_cause()) == []
    assert set(known_recipes.CAUSES) == {item.row["id"] for item in known_recipes.verdicts() if item.verdict == OUT}
