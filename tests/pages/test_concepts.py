"""The pictures of docs/concepts.md: parts of tensors are shares of evaluated bytes, and files are what is drawn."""

from __future__ import annotations

import re
from fractions import Fraction
from math import prod
from pathlib import Path

import pytest

from website.concepts import CONCEPTS, FOLDER, cards
from website.shares import RANKS, SHARES, shares

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
    assert set(re.findall(r"\]\(concepts/(\w+)\.svg\)", PAGE)) == {*CONCEPTS, *SHARES}
    assert {path.stem for path in FOLDER.iterdir()} == {*CONCEPTS, *SHARES}


def test_each_stage_of_zero_shares_out_one_kind_more() -> None:
    parts = {(box.role, box.column): Fraction(box.own, box.whole) for box in shares("zero")}
    shared = {kind: {column for (role, column), part in parts.items() if role == kind and part < 1}
              for kind in ("weight", "gradient", "optimizer")}
    assert shared == {"weight": {"stage 3"}, "gradient": {"stage 2", "stage 3"},
                      "optimizer": {"stage 1", "stage 2", "stage 3"}}
    # Buffers are padded to whole shards.
    least, padding = Fraction(1, RANKS), Fraction(1, 10**4)
    assert all(least <= part < least + padding for part in parts.values() if part < 1)


def test_ranks_of_a_pipeline_share_out_weights_and_have_fewer_in_flight() -> None:
    boxes = shares("pipeline_parallel")
    weights = [box for box in boxes if box.role == "weight"]
    assert sum(box.own for box in weights) == weights[0].whole
    ends, middle = {weights[0].own, weights[-1].own}, {box.own for box in weights[1:-1]}
    assert min(ends) > max(middle)  # embedding and head
    assert len(middle) == 1
    flights = [box.note for box in boxes if box.role == "activation"]
    assert flights == [f"{count} in flight" for count in range(RANKS, 0, -1)]


@pytest.mark.parametrize("name", [*CONCEPTS, *SHARES])
def test_pictures_are_up_to_date(name: str, tmp_path: Path) -> None:
    """Compares all that is written in a picture and every filled rectangle; run make pictures."""
    pytest.importorskip("matplotlib")
    from shardmath.plots.picture import write_picture
    from website import concepts
    from website import shares as shared

    made = (shared if name in SHARES else concepts).picture(name)
    write_picture(made, str(tmp_path / "drawn.svg"))
    drawn, kept = (path.read_text(encoding="utf-8") for path in (tmp_path / "drawn.svg", FOLDER / f"{name}.svg"))
    for pattern in (r"<!--(.*?)-->", r"fill: (#\w+)"):
        assert re.findall(pattern, drawn) == re.findall(pattern, kept)
