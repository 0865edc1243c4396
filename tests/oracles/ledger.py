"""The ledger's side of a comparison: integers of terms for parameters by letter."""

from __future__ import annotations

from functools import cache

from counted import values

from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.terms import Term


@cache
def _needed(implementation: Implementation, names: tuple[str, ...]) -> tuple[Term, ...]:
    terms = build(implementation)
    return tuple(terms.closure(name for name in names if name in terms))


def ledger(implementation: Implementation, *names: str, **letters: int) -> tuple[int, ...]:
    """Evaluate terms exactly; a term that the implementation does not have, for want of rows, is 0.

    Letters that are not given have the defaults of the counted tables: one rank, nothing recomputed.
    Raises ValueError for a value that is not an integer.
    """
    found = evaluate(_needed(implementation, names), {**values({}, "", **letters), **letters})
    numbers = [found.get(name, 0) for name in names]
    if any(number != int(number) for number in numbers):
        raise ValueError(f"not integers: {dict(zip(names, numbers, strict=True))}")
    return tuple(int(number) for number in numbers)
