"""Frozen weights in 4 bits (QLoRA): codes, their scales, and the scales of the scales, as bitsandbytes keeps them.

FSDP and DeepSpeed's stage 3 share out the codes, which lie in a tensor of 16-bit elements then
(``bnb_4bit_quant_storage``); scales and tables are attributes of the parameter, whole on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sympy import Expr, Integer

from ..functions import CeilDiv, pad_to
from ..ledger import Role
from ..parameters import symbols
from .weights import State, Weight, linears

zero3, shards = symbols("zero3 shards")

#: Elements that share a scale, and scales that share a scale of their own.
BLOCK, SCALES = Integer(64), Integer(256)
#: Bytes of the tables of the 16 and of the 256 values, and of the mean of the scales, for every matrix.
TABLES = Integer(4 * (16 + 256 + 1))
#: Codes of a byte, and of a 16-bit element, as which they are shared out.
_IN_A_BYTE, PACKED = Integer(2), Integer(4)


def _codes(weight: Weight) -> Expr:
    return CeilDiv(weight.elements, _IN_A_BYTE)


def packed(weight: Weight) -> Expr:
    """Return the 16-bit elements that hold the codes of a matrix."""
    return CeilDiv(weight.elements, PACKED)


def _scales(weight: Weight) -> Expr:
    return CeilDiv(weight.elements, BLOCK)


def _scales_of_scales(weight: Weight) -> Expr:
    return CeilDiv(_scales(weight), SCALES)


def _one(weight: Weight) -> Expr:
    return Integer(1)


def _others(count: Callable[[Weight], Expr]) -> Callable[[Weight], Expr]:
    return lambda weight: Integer(0) if weight.is_linear else count(weight)


def _elements(weight: Weight) -> Expr:
    return weight.elements


def _part(units: Expr) -> Expr:
    return pad_to(units, shards) / shards


def _rows(weight: Weight) -> Expr:
    """Return the elements of a rank's part of a parameter that FSDP2 cuts along its first dimension."""
    return _part(weight.shape[0]) * weight.elements / weight.shape[0]


def _in_stage3(count: Callable[[Weight], Expr]) -> Callable[[Weight], Expr]:
    """Return a parameter's units on a rank of DeepSpeed: all of them, or in stage 3 a part."""
    return lambda weight: (1 - zero3) * count(weight) + zero3 * _part(count(weight))


#: Units of codes with their bytes, and elements of other weights, that a rank keeps of a parameter.
_KEPT: Mapping[str, tuple[Callable[[Weight], Expr], Integer, Callable[[Weight], Expr]]] = {
    "fsdp": (lambda weight: _part(packed(weight)), Integer(2), _rows),
    "deepspeed": (_in_stage3(packed), Integer(2), _in_stage3(_elements)),
}


def nf4_states(
    whole: tuple[State, ...], data_parallel: str, gathered: Callable[[Expr], Expr] | None = None,
) -> tuple[State, ...]:
    """Return the states of frozen weights: linear layers in 4 bits, all others ``whole``.

    ``gathered`` counts those of a parameter's elements that stay gathered although parameters are shared out.
    """
    codes, size, elements = _KEPT.get(data_parallel, (_codes, Integer(1), _elements))
    own = (*(replace(state, name=f"{state.name}_unquantised",
                     count=_others(state.count or elements)) for state in whole),)
    persisted = () if gathered is None else (
        State("nf4_persisted", Role.WEIGHT, 2 * zero3, "4-bit weights that stay gathered in stage 3", "deepspeed",
              linears(lambda weight: gathered(packed(weight))), attached=True),
    )
    return (
        *own,
        _state("codes", size, "two 4-bit weights of a linear layer in a byte", codes),
        *persisted,
        _attached("scales", Integer(1), "8-bit scales of 64 weights each", _scales),
        _attached("scales_of_scales", Integer(4), "fp32 scales of 256 scales each", _scales_of_scales),
        _attached("tables", TABLES, "fp32 tables of both kinds of codes, and the mean of the scales", _one),
    )


def _state(name: str, size: Expr, meaning: str, count: Callable[[Weight], Expr]) -> State:
    return State(f"nf4_{name}", Role.WEIGHT, size, meaning, "bitsandbytes", linears(count))


def _attached(name: str, size: Expr, meaning: str, count: Callable[[Weight], Expr]) -> State:
    return replace(_state(name, size, meaning, count), attached=True)


def scales_bytes(elements: Expr) -> Expr:
    """Return bytes of a matrix's scales in fp32, as unpacking reads them."""
    return 4 * CeilDiv(elements, BLOCK)


def dequantised_bytes(elements: Expr) -> Expr:
    """Return bytes of a matrix while a product reads it: in bf16, with its scales in fp32."""
    return 2 * elements + scales_bytes(elements)
