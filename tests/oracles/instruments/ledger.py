"""The ledger's side of a comparison: integers from the evaluator that a user of these choices gets."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

from counted import values
from oracles.instruments import traced

from shardmath.compiler.evaluators import Evaluator, find
from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.parameters import BY_NAME


def evaluator(implementation: Implementation) -> Evaluator:
    """The generated evaluator of an implementation, derived if the package does not bring it."""
    return _evaluator(implementation.framework, tuple(implementation.choices.items()))


@cache
def _evaluator(framework: str, choices: tuple[tuple[str, str], ...]) -> Evaluator:
    return find(framework, dict(choices))


def ledger(implementation: Implementation, *names: str, **letters: int) -> tuple[int, ...]:
    """Evaluate terms exactly; a term that the implementation does not have, for want of rows, is 0.

    Letters that are not given have the defaults of the counted tables: one rank, nothing recomputed.
    Raises ValueError for a value that is not an integer.
    """
    module = evaluator(implementation).terms
    # Of GPU, node and job nothing here depends.
    known = {**dict.fromkeys("MNn", 1), **values({}, "", **letters), **letters}
    exact = module.terms(**{name: Fraction(known[BY_NAME[name].letter]) for name in module.INPUTS})
    numbers = [exact.get(name, 0) for name in names]
    if any(number != int(number) for number in numbers):
        raise ValueError(f"not integers: {dict(zip(names, numbers, strict=True))}")
    if traced.ON:
        rows = traced.traced(implementation, names, known, exact)
        return tuple(rows[name] for name in names)
    return tuple(int(number) for number in numbers)
