"""Layers with experts: the last of each step, but none of the first dense ones; and where their tokens go."""

from __future__ import annotations

from sympy import Expr, Gt

from .functions import FloorDiv, Iverson, Min
from .parameters import symbols

E, e, et, ld, step = symbols("E e et ld step")

#: Dispatchers that send a token once to each rank of its experts: Megatron-Core's flex dispatcher.
FLEX: tuple[str, ...] = ("deepep", "hybridep")

#: 1 where a rank has several experts, so that received tokens are sorted.
SEVERAL = Iverson(Gt(E, e))
#: 1 where tokens leave the rank; where they are gathered from ranks that share an expert's width; where they do either.
AFAR, GATHERED = Iverson(e > 1), Iverson(et > 1)
LEAVE = AFAR + GATHERED - AFAR * GATHERED


def experts_before(layer: Expr) -> Expr:
    """Count the layers with experts among the first ``layer`` ones."""
    return FloorDiv(layer, step) - FloorDiv(Min(layer, ld), step)
