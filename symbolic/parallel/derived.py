"""Definitions of the derived symbols, in the order in which they can be computed."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer, Symbol

from ..choices import absent_values
from ..functions import Max, pad_to
from ..parameters import symbols
from ..systems import SYSTEMS
from . import data, dispatch, pipeline
from .mesh import OWN_SEQUENCES, SAME_SEQUENCES, STAGE_RANKS, VOCABULARY_RANKS

a, k, d, u, g, t, p, sp, B, b, D, R = symbols("a k d u g t p sp B b D R")

#: Ranks that hold one replica of the model together.
MODEL_RANKS = STAGE_RANKS * p
#: Sequences of one micro-batch on every rank that works on its own.
SEQUENCES = b * D * OWN_SEQUENCES / SAME_SEQUENCES
#: Micro-batches of one step and rank.
MICROBATCHES = B / SEQUENCES

_SIZES: dict[str, Expr] = {
    "A": a * d,
    "K": k * d,
    "v": pad_to(u, g * VOCABULARY_RANKS),
    "ts": Integer(1) + sp * (t - 1),
    "kt": Max(k / t, Integer(1)),
    "m": MICROBATCHES,
}


def published() -> dict[str, Expr]:
    """Return definitions of publications: plain data and tensor parallelism, a plain pipeline of dense layers."""
    choices = {"schedule": "1f1b", "stages": "even", "layers": "dense", "recompute_method": "each", "dropout": "none",
               "biases": "qkv", "capping": "none", "window": "none", "documents": "one",
               **{system.axis.name: system.absent for system in SYSTEMS}}
    return {letter: value.xreplace({R: Integer(1)}) for letter, value in definitions(choices, "megatron").items()}


def given(choices: Mapping[str, str]) -> frozenset[Symbol]:
    """Derived symbols that are inputs instead: what an explicit list of layers says of a stage."""
    return frozenset(pipeline.LISTED) if choices["stages"] == "listed" else frozenset()


def definitions(choices: Mapping[str, str], framework: str) -> dict[str, Expr]:
    """Return the definition of every derived symbol that an implementation with these choices has, by letter."""
    absent = absent_values(choices)
    formulas = {
        **_SIZES, **pipeline.definitions(choices, framework), **data.definitions(choices),
        **dispatch.definitions(choices),
    }
    return {letter: value.xreplace(absent) for letter, value in formulas.items()}
