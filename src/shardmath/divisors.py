"""The divisors of a number: candidates of axes, and the nearest legal values in messages."""

from __future__ import annotations

from math import isqrt


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a positive integer, ascending."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))
