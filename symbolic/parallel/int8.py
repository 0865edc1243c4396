"""Frozen weights in 8 bits (LLM.int8): codes, and an fp32 scale of every output, as bitsandbytes keeps them.

Columns of inputs with outliers are multiplied once more in 16 bits and kept; how many they are follows from values, so
none is counted.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import Expr, Integer

from ..functions import Max
from ..ledger import Role
from .weights import State, Weight, elements, linears


def int8_states(whole: tuple[State, ...]) -> tuple[State, ...]:
    """Return the states of frozen weights: linear layers in 8 bits, all others ``whole``."""
    return (
        *(replace(state, name=f"{state.name}_unquantised", count=_others) for state in whole),
        State("int8_codes", Role.WEIGHT, Integer(1), "8-bit weight of a linear layer", "bitsandbytes",
              linears(elements)),
        State("int8_scales", Role.WEIGHT, Integer(4), "fp32 scale of an output of a linear layer", "bitsandbytes",
              linears(_outputs)),
    )


def _others(weight: Weight) -> Expr:
    return Integer(0) if weight.is_linear else weight.elements


def _outputs(weight: Weight) -> Expr:
    return weight.shape[0]


def passing_bytes(outputs: Expr, inputs: Expr, tokens: Expr) -> Expr:
    """Return the most bytes that a product makes besides its output, as its functions for GPUs do.

    Forward these are the inputs' codes with a scale for each token, and products in int32 and in fp16; backward the
    matrix in bf16 and its scales once more.
    """
    return Max(tokens * (inputs + 4 + 6 * outputs), 2 * outputs * inputs + 4 * outputs)
