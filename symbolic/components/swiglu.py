"""SwiGLU: gate and up projection, the gated activation, down projection."""

from __future__ import annotations

from ..dimensions import BATCH, FFN, GATE_UP_FEATURES, HIDDEN, SEQUENCE, SEQUENCE_SP
from ..ledger import Component, Place, saved, weight
from ..parameters import symbol

lbias = symbol("lbias")

_LOW = ("mixed", "bf16")
_CAST = ("autocast",)
_RESIDUAL = (SEQUENCE_SP, BATCH, HIDDEN)
_INNER = (SEQUENCE, BATCH, FFN)

COMPONENTS = (
    Component(
        "swiglu", "SwiGLU", 50, Place.DENSE,
        (
            weight("gate_up.weight", "gate_up", (GATE_UP_FEATURES, HIDDEN), "megatron_core",
                   "fused gate and up projection", projections=("fused",)),
            weight("gate.weight", "gate_up", (FFN, HIDDEN), "pytorch", "gate projection", projections=("separate",)),
            weight("up.weight", "gate_up", (FFN, HIDDEN), "pytorch", "up projection", projections=("separate",)),
            weight("gate_up.bias", "gate_up", (GATE_UP_FEATURES,), "megatron_core",
                   "bias of the gate and up projections", lbias),
            weight("down.weight", "down", (HIDDEN, FFN), "megatron_core", "down projection"),
            weight("down.bias", "down", (HIDDEN,), "megatron_core",
                   "bias of the down projection, on every rank", lbias),
            saved("gate_up.input", "gate_up", _RESIDUAL, 2, "megatron_core",
                  "input of the gate and up projections", storage="mlp.normed", precision=_LOW,
                  gathered_input=("dropped",)),
            saved("gate_up.input_gathered", "gate_up", (SEQUENCE, BATCH, HIDDEN), 2, "torchtitan",
                  "input of the gate and up projections, gathered over the tensor-parallel ranks",
                  precision=_LOW, gathered_input=("kept",)),
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
                  swiglu=("eager", "unfused")),
            saved("up_copy", "activation", _INNER, 2, "megatron_core", "up projection plus an offset of 0",
                  swiglu=("unfused",)),
            saved("down.input", "down", _INNER, 2, "megatron_core", "input of the down projection"),
            saved("down.weight_cast", "down", (HIDDEN, FFN), 2, "pytorch", "bf16 copy of the down weight",
                  precision=_CAST),
        ),
        options={"mlp": ("swiglu",)},
    ),
)
