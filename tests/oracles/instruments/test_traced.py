"""Numbers of the ledger note the rows without which they would not equal a count."""

from __future__ import annotations

import os

import pytest
from counted import DEFAULTS
from oracles.instruments import traced
from oracles.instruments.ledger import ledger
from oracles.instruments.traced import Traced, evaluated

from shardmath.symbolic.implementations import HUGGINGFACE

SHAPE = {"s": 64, "b": 2, "h": 64, "f": 128, "a": 4, "k": 2, "d": 16, "L": 2, "u": 128}


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "noted", {})
    monkeypatch.setattr(traced, "ON", True)


def rows_noted() -> dict[str, int]:
    file = os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]
    return traced.noted.get("megatron", {}).get(file, {})


def test_rows_of_a_sum_are_noted_where_it_equals_a_count() -> None:
    number = Traced.of(12, "megatron", {"attention.q": 10, "attention.k": 2})
    assert number != 13
    assert not rows_noted()
    assert sum((number, 5)) - 3 == 14
    assert rows_noted() == {"attention.q": 2, "attention.k": 2}


def test_rows_within_an_allowed_difference_are_not_noted() -> None:
    number = Traced.of(12, "megatron", {"attention.q": 10, "attention.k": 2})
    assert abs(14 - number) <= 2
    assert rows_noted() == {"attention.q": 2}


def test_a_term_knows_the_rows_that_change_it() -> None:
    recomputed, saved = (ledger(HUGGINGFACE, "stage.activation", **SHAPE, rfull=rfull)[0] for rfull in (1, 0))
    assert isinstance(recomputed, Traced)
    assert isinstance(saved, Traced)
    assert "layer_input.input" in recomputed.rows
    assert "attention.q" not in recomputed.rows
    assert "attention.q" in saved.rows
    assert "layer_input.input" not in saved.rows


def test_of_a_maximum_only_the_larger_side_counts() -> None:
    most, forward, backward = ledger(
        HUGGINGFACE, "stage.moment", "stage.loss.loss_forward", "stage.loss.loss_backward", **SHAPE)
    assert isinstance(most, Traced)
    assert forward < backward
    assert "loss.gradient_logits" in most.rows
    assert "loss.logits_fp32" not in most.rows


def test_terms_of_counted_tables_know_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    names, letters = ["stage.activation", "stage.expert_parameters"], {**DEFAULTS, **SHAPE}
    numbers = evaluated(HUGGINGFACE, names, letters)
    assert "stage.expert_parameters" not in numbers
    assert isinstance(numbers["stage.activation"], Traced)
    assert "attention.q" in numbers["stage.activation"].rows
    monkeypatch.setattr(traced, "ON", False)
    assert evaluated(HUGGINGFACE, names, letters) == numbers
