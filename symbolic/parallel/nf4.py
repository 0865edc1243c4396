"""Frozen weights in 4 bits (QLoRA): codes, their scales, and the scales of the scales, as bitsandbytes keeps them."""

from __future__ import annotations

from dataclasses import replace

from sympy import Expr, Integer

from ..functions import CeilDiv
from ..ledger import Role
from .weights import State, Weight, linears

#: Elements that share a scale, and scales that share a scale of their own.
BLOCK, SCALES = Integer(64), Integer(256)
#: Bytes of the tables of the 16 and of the 256 values, and of the mean of the scales, for every matrix.
TABLES = Integer(4 * (16 + 256 + 1))


def _codes(weight: Weight) -> Expr:
    return CeilDiv(weight.elements, Integer(2))


def _scales(weight: Weight) -> Expr:
    return CeilDiv(weight.elements, BLOCK)


def _scales_of_scales(weight: Weight) -> Expr:
    return CeilDiv(_scales(weight), SCALES)


def _one(weight: Weight) -> Expr:
    return Integer(1)


def _not_linear(weight: Weight) -> Expr:
    return Integer(0) if weight.is_linear else weight.elements


def nf4_states(whole: tuple[State, ...]) -> tuple[State, ...]:
    """Return the states of frozen weights: linear layers in 4 bits, all others ``whole``."""

    def quantised(name: str, size: Expr, meaning: str) -> State:
        count = {"codes": _codes, "scales": _scales, "scales_of_scales": _scales_of_scales, "tables": _one}[name]
        return State(f"nf4_{name}", Role.WEIGHT, size, meaning, "bitsandbytes", linears(count))

    return (
        *(replace(state, name=f"{state.name}_unquantised", count=_not_linear) for state in whole),
        quantised("codes", Integer(1), "two 4-bit weights of a linear layer in a byte"),
        quantised("scales", Integer(1), "8-bit scales of 64 weights each"),
        quantised("scales_of_scales", Integer(4), "fp32 scales of 256 scales each"),
        quantised("tables", TABLES, "fp32 tables of both kinds of codes, and the mean of the scales"),
    )
