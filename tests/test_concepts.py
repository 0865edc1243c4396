"""The pictures of docs/concepts.md: parts of tensors are shares of evaluated bytes, and files are what is drawn."""

from __future__ import annotations

import re
from fractions import Fraction
from math import prod
from pathlib import Path

import pytest

from website.concepts import CONCEPTS, FOLDER, cards

pytestmark = pytest.mark.slow
PAGE = (FOLDER.parent / "concepts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CONCEPTS)
def test_parts_of_a_tensor_are_its_share_of_the_bytes(name: str) -> None:
    for card in cards(name):
        assert Fraction(card.own, card.whole) == Fraction(1, prod(card.parts)), card


def test_each_dimension_shares_out_what_the_page_says() -> None:
    whole = {name: {card.name for card in cards(name) if prod(card.parts) == 1} for name in CONCEPTS}
    saved = {name: {card.name for card in cards(name) if card.role == "activation"} for name in CONCEPTS}
    inputs = {"attention_norm.input", "attention.qkv.input", "ffn_norm.input", "swiglu.gate_up.input"}
    norms = {"attention_norm.weight", "ffn_norm.weight"}
    assert whole["tensor_parallel"] == norms | inputs
    assert whole["sequence_parallel"] == norms
    assert whole["context_parallel"] & saved["context_parallel"] == set()
    assert saved["expert_parallel"] <= whole["expert_parallel"]
    experts = {"experts.gate_up.weight", "experts.down.weight"}
    assert {card.name for card in cards("expert_parallel")} - whole["expert_parallel"] == experts


def test_page_shows_every_picture() -> None:
    assert set(re.findall(r"\]\(concepts/(\w+)\.svg\)", PAGE)) == set(CONCEPTS)
    assert {path.stem for path in FOLDER.iterdir()} == set(CONCEPTS)


@pytest.mark.parametrize("name", CONCEPTS)
def test_pictures_are_up_to_date(name: str, tmp_path: Path) -> None:
    """Compares all that is written in a picture and every filled rectangle; run make pictures."""
    pytest.importorskip("matplotlib")
    from shardmath.plots.picture import write_picture
    from website.concepts import picture

    write_picture(picture(name), str(tmp_path / "drawn.svg"))
    drawn, kept = (path.read_text(encoding="utf-8") for path in (tmp_path / "drawn.svg", FOLDER / f"{name}.svg"))
    for pattern in (r"<!--(.*?)-->", r"fill: (#\w+)"):
        assert re.findall(pattern, drawn) == re.findall(pattern, kept)
