"""Count layers with experts at work on a stage, and what they have freed when dense layers go backward."""

from __future__ import annotations

from sympy import Eq, Expr, Integer

from ..functions import Iverson, Min
from ..implementations import Implementation
from ..ledger import Lifetime, Place
from ..parallel.pipeline import held, instances, is_one_chunk
from ..parameters import symbols
from ..terms import TermSet, product, total

nr, step = symbols("nr step")


def at_work(implementation: Implementation) -> Expr:
    """1 if the stage has layers with experts, further predictions among them."""
    places = (Place.EXPERTS, Place.MTP)
    return Min(Integer(1), total(*(instances(place, implementation.choices) for place in places)))


def passed(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what layers with experts have freed when the dense layers before them go backward.

    With several chunks per rank, or dense layers between those with experts, nothing is taken to be freed.
    """
    before = product(Iverson(Eq(step, 1)), is_one_chunk(implementation.choices))
    kept = held(Place.EXPERTS, Lifetime.IN_FLIGHT, implementation.choices)
    return product(before, kept, terms["expert_layer.saved"].symbol) / nr
