"""SwiGLU, or GeGLU with GELU for SiLU: gate and up projection, the gated activation, down projection."""

from __future__ import annotations

from typing import Any

from ..dimensions import (
    BATCH,
    FFN,
    FFN_SCALES,
    GATE_UP_FEATURES,
    HIDDEN,
    HIDDEN_COLUMNS,
    HIDDEN_PART,
    HIDDEN_SCALES,
    SEQUENCE,
    SEQUENCE_SP,
)
from ..functions import Iverson
from ..ledger import Component, Place, Tensor, saved, transient, weight
from ..parameters import symbol
from ..work_rows import column_parallel, gated_work, grid_transfers, residual_work, row_parallel
from .mlp_rows import MLP_BIAS, mlp_input

ts = symbol("ts")

_LOW = ("mixed", "bf16", "fp16", "fp32")
_CAST = ("autocast",)
_NONE = ("none",)
#: Where gate and up come out of one projection, and where each has its own.
_JOINT, _APART = ("fused", "gate_up"), ("separate", "qkv")
#: Recipes of FP8 with one scale for a tensor, and with scales of blocks.
_SCALED, _BLOCKS = ("delayed", "current"), ("block", "mx")
_RESIDUAL = (SEQUENCE_SP, BATCH, HIDDEN)
_INNER = (SEQUENCE, BATCH, FFN)
_TOKENS = (SEQUENCE, BATCH)


def _backward() -> tuple[Tensor, ...]:
    """Return the live tensors of nanotron's last layer: its output, and when SiLU's factors get their gradients."""
    at: Any = {"sites": ("layer_backward",), "data_parallel": ("torch_ddp",)}
    out: Any = {"sites": ("stage_exchange",), "data_parallel": ("torch_ddp",)}
    src = "nanotron"
    return (
        transient("down.partial_output", "down", (SEQUENCE, BATCH, HIDDEN), 2, src,
                  "bf16 output of the rank's part, before it is summed over ranks", when=Iverson(ts > 1), **out),
        transient("down.output", "down", _RESIDUAL, 2, src, "bf16 output of the layer", **out),
        transient("down.output_gradient", "down", _RESIDUAL, 2, src, "bf16 gradient of the layer's output", **at),
        transient("down.input_gradient", "down", _INNER, 2, src, "bf16 gradient of the down projection's input", **at),
        transient("down.weight_gradient", "down", (HIDDEN, FFN), 2, src, "bf16 gradient of the down projection", **at),
        transient("factor_gradients", "activation", _INNER, 2, src,
                  "bf16 gradients of SiLU and of the up projection, less the freed input of the down projection", **at),
    )


COMPONENTS = (
    Component(
        "swiglu", "SwiGLU", 50, Place.DENSE,
        (
            weight("gate_up.weight", "gate_up", (GATE_UP_FEATURES, HIDDEN_COLUMNS), "megatron_core",
                   "fused gate and up projection", tokens=_TOKENS, projections=_JOINT),
            weight("gate.weight", "gate_up", (FFN, HIDDEN_COLUMNS), "pytorch", "gate projection",
                   tokens=_TOKENS, projections=_APART),
            weight("up.weight", "gate_up", (FFN, HIDDEN_COLUMNS), "pytorch", "up projection",
                   tokens=_TOKENS, projections=_APART),
            weight("gate_up.bias", "gate_up", (GATE_UP_FEATURES,), "megatron_core",
                   "bias of the gate and up projections", MLP_BIAS),
            weight("down.weight", "down", (HIDDEN_COLUMNS, FFN), "megatron_core", "down projection", tokens=_TOKENS),
            weight("down.bias", "down", (HIDDEN_PART,), "megatron_core",
                   "bias of the down projection, on every rank", MLP_BIAS),
            *mlp_input("gate_up", "input of the gate and up projections", gathered_input=("dropped",), fp8=_NONE,
                       adapters=_NONE),
            saved("gate_up.input_gathered", "gate_up", (SEQUENCE, BATCH, HIDDEN), 2, "torchtitan",
                  "input of the gate and up projections, gathered over the tensor-parallel ranks",
                  precision=_LOW, gathered_input=("kept",)),
            saved("gate_up.input_fp8", "gate_up", _RESIDUAL, 1, "transformer_engine",
                  "FP8 input of the gate and up projections", fp8=(*_SCALED, *_BLOCKS)),
            saved("gate_up.input_scale", "gate_up", (), 4, "transformer_engine", "fp32 inverse scale of the input",
                  fp8=_SCALED),
            saved("gate_up.input_scales", "gate_up", (SEQUENCE_SP, BATCH, HIDDEN_SCALES), 1, "transformer_engine",
                  "scales of the input: 8 bits for 32 elements, or fp32 for 128", fp8=_BLOCKS),
            saved("gate.input_cast", "gate_up", _RESIDUAL, 2, "pytorch", "bf16 copy of the input for gate",
                  precision=_CAST),
            saved("up.input_cast", "gate_up", _RESIDUAL, 2, "pytorch", "bf16 copy of the input for up",
                  precision=_CAST),
            saved("gate.weight_cast", "gate_up", (HIDDEN, FFN), 2, "pytorch", "bf16 copy of the gate weight",
                  precision=_CAST),
            saved("up.weight_cast", "gate_up", (HIDDEN, FFN), 2, "pytorch", "bf16 copy of the up weight",
                  precision=_CAST),
            saved("gate", "activation", _INNER, 2, "megatron_core", "gate projection, input of SiLU"),
            saved("up", "activation", _INNER, 2, "megatron_core", "up projection"),
            saved("silu", "activation", _INNER, 2, "transformers", "SiLU of the gate projection",
                  swiglu=("eager", "unfused"), compile=("none",)),
            saved("up_copy", "activation", _INNER, 2, "megatron_core", "up projection plus an offset of 0",
                  swiglu=("unfused",)),
            saved("down.input", "down", _INNER, 2, "megatron_core", "input of the down projection",
                  adapters=_NONE, fp8=_NONE),
            saved("down.input_fp8", "down", _INNER, 1, "transformer_engine", "FP8 input of the down projection",
                  fp8=(*_SCALED, *_BLOCKS)),
            saved("down.input_scale", "down", (), 4, "transformer_engine", "fp32 inverse scale of the input",
                  fp8=_SCALED),
            saved("down.input_scales", "down", (SEQUENCE, BATCH, FFN_SCALES), 1, "transformer_engine",
                  "scales of the input: 8 bits for 32 elements, or fp32 for 128", fp8=_BLOCKS),
            saved("down.weight_cast", "down", (HIDDEN, FFN), 2, "pytorch", "bf16 copy of the down weight",
                  precision=_CAST),
            *_backward(),
        ),
        options={"mlp": ("swiglu", "geglu")},
        work=(
            *column_parallel("gate_up", "gate_up"), *gated_work("activation", _INNER),
            *row_parallel("down", "down"), *residual_work("mlp_residual"),
            *grid_transfers("gate_up", GATE_UP_FEATURES, "down", FFN),
        ),
    ),
)
