"""The ledger's side of a comparison of work, traffic and time: exact values of the terms of a step's time."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

from counted import values

from shardmath.files.rendering import rendered
from shardmath.symbolic.documents.evaluator import evaluator
from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.parameters import BY_NAME, PARAMETERS, Kind
from shardmath.symbolic.timing import build_times

#: A machine on which every number is a round one; work and traffic do not depend on it.
MACHINE = {item.letter: max(item.minimum, 1) for item in PARAMETERS if item.kind is Kind.MACHINE}


@cache
def _module(implementation: Implementation) -> tuple[Callable[..., dict[str, Any]], tuple[str, ...]]:
    found: dict[str, Any] = {}
    text = rendered("evaluator.py", evaluator("Time of sharded training", build_times(implementation), ()))
    exec(compile(text, f"<time of {implementation.name}>", "exec"), found)
    return found["terms"], found["INPUTS"]


def timed(implementation: Implementation, **letters: int) -> dict[str, Fraction]:
    """Every term of the time of a step, exactly; letters that are not given have the defaults of the counted tables."""
    terms, inputs = _module(implementation)
    known = {**dict.fromkeys("MNn", 1), **MACHINE, **values({}, "", **letters), **letters}
    return terms(**{name: Fraction(known[BY_NAME[name].letter]) for name in inputs})


def work(implementation: Implementation, *names: str, **letters: int) -> tuple[int, ...]:
    """Counts of work or traffic; a term that the implementation does not have, for want of rows, is 0.

    Raises ValueError for a value that is not an integer.
    """
    found = timed(implementation, **letters)
    numbers = [Fraction(found.get(name, 0)) for name in names]
    if any(number.denominator != 1 for number in numbers):
        raise ValueError(f"not integers: {dict(zip(names, numbers, strict=True))}")
    return tuple(int(number) for number in numbers)
