"""Layers with experts: the last of each step, but none of the first dense ones."""

from __future__ import annotations

from sympy import Expr

from .functions import FloorDiv, Min
from .parameters import symbols

ld, step = symbols("ld step")


def experts_before(layer: Expr) -> Expr:
    """Count the layers with experts among the first ``layer`` ones."""
    return FloorDiv(layer, step) - FloorDiv(Min(layer, ld), step)
