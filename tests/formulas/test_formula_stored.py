"""Terms that are written down in the package are those that are derived, and nothing is derived to show them."""

from __future__ import annotations

from random import Random

import pytest
from oracles.extent import FULL, SEED

import shardmath
from shardmath.commands.formula.run import _derived, _stored
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.published import all_published
from shardmath.symbolic.timing import build_all


def _plain(value: object) -> object:
    """A record as JSON would have it: lists for tuples."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return {name: _plain(part) for name, part in value.items()} if isinstance(value, dict) else value


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_what_is_written_down_is_what_is_derived(name: str) -> None:
    """Stored terms of memory and time come from two sets of terms; those derived on demand from one of both."""
    every = tuple(build_all(IMPLEMENTATIONS[name]).terms)
    for term in every if FULL else Random(SEED).sample(every, 60):
        assert _plain(_derived(term, name, (), (), False)) == _plain(_stored(term, name)), term


@pytest.mark.slow
def test_what_is_written_down_of_publications_is_what_is_derived() -> None:
    terms = [term.name for item in all_published() for term in item.own]
    for term in terms:
        assert _plain(_derived(term, "megatron", (), (), False)) == _plain(_stored(term, "megatron")), term


def test_forms_are_printed_when_they_are_asked_for() -> None:
    formula = shardmath.formula("attention.saved")
    assert formula.forms.__dict__.keys() == {"question"}
    assert formula.forms.latex == formula.latex()
    assert formula == shardmath.formula("attention.saved")


@pytest.mark.parametrize(("term", "message"), [
    ("attention.saved\", [", "must be a term of megatron"), ("attention.save", "nearest legal: attention.saved"),
    ("fujii2024.totals", "nearest legal: fujii2024.total"),
])
def test_terms_that_nobody_wrote_down_are_refused(term: str, message: str) -> None:
    with pytest.raises(shardmath.InputError) as error:
        shardmath.formula(term)
    assert message in str(error.value)
