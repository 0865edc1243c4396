"""The page of published recipes beside the fastest layouts: what its program writes, each difference with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation import beside_recipes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_its_program_writes() -> None:
    assert (ROOT / "docs" / "beside-recipes.md").read_text(encoding="utf-8") == beside_recipes.page()


def test_every_difference_has_a_reason() -> None:
    items = beside_recipes.situations()
    assert len(items) >= 12
    others = {item.case.id for item in items if not beside_recipes.is_same(item)}
    assert {*beside_recipes.WHY} == others
    assert len(others) < len(items)


def test_no_layout_is_likelier_to_run_out_than_asked() -> None:
    for item in beside_recipes.situations():
        assert item.fitting is not None
        assert item.as_likely is not None
        assert item.fitting.account.run_out_probability < 0.01
        assert item.as_likely.account.run_out_probability <= max(0.01, item.recipe.run_out_probability * 1.001)
        assert beside_recipes.seconds_of(item.as_likely.account) <= beside_recipes.seconds_of(item.fitting.account)
