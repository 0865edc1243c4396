"""The plan of a training: how long, at what price, with how much energy, and what to train with a given budget."""

from __future__ import annotations

from functools import cache

from ..terms import TermSet
from . import duration, optimal
from .letters import SYMBOLS

NAME = "plan"


@cache
def plan_terms() -> TermSet:
    """Return every formula of a plan, each after those that it needs."""
    terms = TermSet(NAME, as_inputs=frozenset(SYMBOLS))
    for add in (duration.add, duration.add_gains, optimal.add):
        add(terms)
    return terms
