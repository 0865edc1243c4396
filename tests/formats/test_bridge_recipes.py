"""docs/bridge-recipes.md is what its program writes from the table of recipes; how many are refused."""

from __future__ import annotations

from pathlib import Path

from shardmath.formats.bridge.reading import NOUNS
from validation import bridge_checkout

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_its_program_writes() -> None:
    assert (ROOT / "docs" / "bridge-recipes.md").read_text(encoding="utf-8") == bridge_checkout.page()


def test_most_recipes_of_text_decoders_are_counted() -> None:
    counts = bridge_checkout.counts()
    text = sum(counts[name] for name in (bridge_checkout.COUNTED, bridge_checkout.READ, bridge_checkout.REFUSED))
    assert counts[bridge_checkout.COUNTED] / text >= 0.73
    assert counts[bridge_checkout.REFUSED] / text <= 0.08


def test_every_recipe_is_counted_or_refused_with_words() -> None:
    rows = bridge_checkout.rows()
    assert len(rows) == 756
    assert len({(row["file"], row["recipe"]) for row in rows}) == len(rows)
    for row in rows:
        assert (row["outcome"] == bridge_checkout.COUNTED) == (not row["refusal"])
    assert all(any(noun in row["refusal"] for noun in NOUNS) for row in rows
               if row["outcome"] == bridge_checkout.OTHER)
