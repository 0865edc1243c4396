"""FP8 and FP4 of Transformer Engine: quantised copies of linear weights, or FP8 weights, and their scales.

Read in its release 2.11 and in Megatron-Core 0.16.1. With one scale for a tensor a transposed copy is kept as
well, as the GPUs before Blackwell need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sympy import Expr, Integer

from ..components.quantised import PACKED
from ..functions import CeilDiv, pad_to
from ..ledger import Role
from ..parameters import symbols
from .weights import State, Weight, elements, linears, one

ah = symbols("ah")[0]

_SOURCE = "transformer_engine"
#: Quantised tensors of one linear layer: input, weight and output forward, gradients of output and input backward.
_QUANTIZERS = 5
#: Elements along an edge of a scaled block.
_BLOCK, _MX_BLOCK, _FP4_BLOCK = Integer(128), Integer(32), Integer(16)


def _block_scales(weight: Weight) -> Expr:
    """Return a scale for every 128 x 128 elements, once by rows and once by columns, the inner edge in fours."""
    rows, columns = (CeilDiv(size, _BLOCK) for size in weight.shape)
    return rows * pad_to(columns, Integer(4)) + columns * pad_to(rows, Integer(4))


def _tiled_scales(block: Integer) -> Callable[[Weight], Expr]:
    """Return a scale for every ``block`` elements of a row and of a column, padded to tiles of 128 by 4 scales."""
    def scales(weight: Weight) -> Expr:
        rows, columns = weight.shape
        return (
            pad_to(rows, _BLOCK) * pad_to(columns / block, Integer(4))
            + pad_to(rows / block, Integer(4)) * pad_to(columns, _BLOCK)
        )
    return scales


def _kept(name: str, size: int | Expr, meaning: str, count: Callable[[Weight], Expr]) -> State:
    return State(name, Role.WEIGHT, Integer(size) if isinstance(size, int) else size, meaning, _SOURCE, linears(count))


#: Scales of each recipe, besides those in the rows of activations.
_SCALES: Mapping[str, tuple[State, ...]] = {
    "none": (),
    "delayed": (
        _kept("fp8_scale", 4, "fp32 inverse scale of an FP8 weight", one),
        _kept("fp8_history", 4 * _QUANTIZERS * (1 + ah),
              "fp32 scales of a linear layer's quantised tensors, and their largest magnitudes in recent steps", one),
    ),
    "current": (
        _kept("fp8_scale", 4, "fp32 inverse scale of an FP8 weight", one),
        _kept("fp8_workspace", 2 * 4 * _QUANTIZERS,
              "fp32 scales and largest magnitudes of a linear layer's quantised tensors", one),
    ),
    "block": (_kept("fp8_scale", 4, "fp32 scales of an FP8 weight by blocks of 128 x 128", _block_scales),),
    "mx": (_kept("fp8_scale", 1, "8-bit scales of an FP8 weight by blocks of 32", _tiled_scales(_MX_BLOCK)),),
    "nvfp4": (
        _kept("fp4_scale", 1, "8-bit scales of an FP4 weight by blocks of 16", _tiled_scales(_FP4_BLOCK)),
        _kept("fp4_magnitude", 2 * 4, "fp32 largest magnitudes of an FP4 weight, by rows and by columns", one),
    ),
}


def fp8_states(choices: Mapping[str, str]) -> tuple[State, ...]:
    """Return the FP8 states of linear weights, besides the states of every weight."""
    recipe = choices["fp8"]
    if recipe == "none":
        return ()
    if recipe in PACKED:
        data = _kept("fp4_copy", 1, "FP4 copies of a linear weight by rows and by columns, two elements in a byte",
                     elements)
    elif choices["fp8_weights"] == "copy":
        data = _kept("fp8_copy", 2, "FP8 copy of a linear weight and its transpose", elements)
    elif recipe == "mx":
        data = _kept("fp8_weight", 2, "FP8 weight by rows and by columns, outside of any buffer", elements)
    elif choices["data_parallel"] == "megatron_fsdp":  # transposed where they are gathered
        return _SCALES[recipe]
    else:
        data = _kept("fp8_transpose", 1, "transposed FP8 weight", elements)
    return (data, *_SCALES[recipe])


def fp8_weight(choices: Mapping[str, str]) -> tuple[State, ...]:
    """Get the weights of a buffer of FP8 parameters; MXFP8 ones are gathered in the buffer of the gradients instead."""
    if choices["fp8"] == "mx":
        return ()
    return (State("weight", Role.WEIGHT, Integer(1), "FP8 weight", _SOURCE),)
