"""Definitions of the derived symbols, in the order in which they can be computed."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer, Max

from ..functions import pad_to
from ..parameters import symbols
from . import data, pipeline

a, k, d, u, g, t, sp, B, b, D, R = symbols("a k d u g t sp B b D R")

_SIZES: dict[str, Expr] = {
    "A": a * d,
    "K": k * d,
    "v": pad_to(u, g * t),
    "ts": Integer(1) + sp * (t - 1),
    "kt": Max(k / t, Integer(1)),
    "m": B / (b * D),
}


def published() -> dict[str, Expr]:
    """Definitions as publications use them: one group of data-parallel ranks, a plain pipeline of dense layers."""
    choices = {"schedule": "1f1b", "stages": "even", "layers": "dense", "recompute_method": "each"}
    return {letter: value.xreplace({R: Integer(1)}) for letter, value in definitions(choices).items()}


def definitions(choices: Mapping[str, str]) -> dict[str, Expr]:
    """The definition of every derived symbol that an implementation with these choices has, by letter."""
    return {**_SIZES, **pipeline.definitions(choices), **data.definitions(choices)}
