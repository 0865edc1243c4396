"""Sources of a formula as BibTeX: those of all rows behind it, or its publication's."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from shardmath import InputError, formula
from shardmath.commands.formula.citing import bibliography
from shardmath.symbolic.published import all_published

pytestmark = pytest.mark.slow


def keys(term: str, implementation: str = "megatron") -> set[str]:
    """The keys of the entries that are printed."""
    return set(re.findall(r"^@misc\{(\w+),$", bibliography(term, implementation), re.MULTILINE))


@pytest.mark.parametrize("term", ["swiglu.saved", "attention.saved"])
def test_a_term_of_rows_has_their_sources(term: str) -> None:
    assert keys(term) == {row.source for row in formula(term).rows}


@pytest.mark.parametrize("implementation", ["megatron", "torchtitan"])
def test_a_sum_has_the_sources_of_its_terms(implementation: str) -> None:
    layer = keys("layer.saved", implementation)
    parts = set(chain.from_iterable(keys(f"{part}.saved", implementation) for part in ("attention", "swiglu")))
    assert parts <= layer <= keys("first.total", implementation)


def test_a_published_term_has_its_publication() -> None:
    published = {own.name: item.source for item in all_published() for own in item.own[:1]}
    assert {name: keys(name) for name in published} == {name: {source} for name, source in published.items()}


def test_an_unknown_term_is_refused() -> None:
    with pytest.raises(InputError, match=r"^term = 'swiglu.save': must be a term; nearest legal: swiglu.saved"):
        bibliography("swiglu.save")
