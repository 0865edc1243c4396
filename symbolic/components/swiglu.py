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
from .quantised import quantised

ts = symbol("ts")

_LOW = ("mixed", "bf16", "fp16", "fp32")
_CAST = ("autocast",)
_NONE = ("none",)
#: Where gate and up come out of one projection, and where each has its own.
_JOINT, _APART = ("fused", "gate_up"), ("separate", "qkv")
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
            *quantised("gate_up.input", "gate_up", _RESIDUAL[:2], (HIDDEN, HIDDEN_SCALES), normed=True,
                       adapted=("all_linear",)),
            saved("gate.input_cast", "gate_up", _RESIDUAL, 2, "pytorch", "bf16 copy of the input for gate, or for both",
                  precision=_CAST),
            saved("up.input_cast", "gate_up", _RESIDUAL, 2, "pytorch", "bf16 copy of the input for up",
                  precision=_CAST, projections=("separate", "qkv")),
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
            *quantised("down.input", "down", _TOKENS, (FFN, FFN_SCALES)),
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
