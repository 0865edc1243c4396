"""GELU MLP: up projection, GELU, down projection; the biases of both are those of all projections."""

from __future__ import annotations

from ..dimensions import BATCH, FFN, HIDDEN, SEQUENCE, SEQUENCE_SP
from ..ledger import Component, Place, saved, weight
from ..parameters import symbol
from ..work import Stream
from ..work_rows import column_parallel, residual_work, row_parallel

lbias = symbol("lbias")

_LOW = ("mixed", "bf16", "fp16")
_CAST = ("autocast",)
_RESIDUAL = (SEQUENCE_SP, BATCH, HIDDEN)
_INNER = (SEQUENCE, BATCH, FFN)
_TOKENS = (SEQUENCE, BATCH)

COMPONENTS = (
    Component(
        "gelu", "GELU MLP", 50, Place.DENSE,
        (
            weight("up.weight", "up", (FFN, HIDDEN), "megatron_core", "up projection", tokens=_TOKENS),
            weight("up.bias", "up", (FFN,), "megatron_core", "bias of the up projection", lbias),
            weight("down.weight", "down", (HIDDEN, FFN), "megatron_core", "down projection", tokens=_TOKENS),
            weight("down.bias", "down", (HIDDEN,), "megatron_core",
                   "bias of the down projection, on every rank", lbias),
            saved("up.input", "up", _RESIDUAL, 2, "megatron_core", "input of the up projection",
                  storage="mlp.normed", precision=_LOW),
            saved("up.input_cast", "up", _RESIDUAL, 2, "pytorch", "bf16 copy of the input", precision=_CAST),
            saved("up.weight_cast", "up", (HIDDEN, FFN), 2, "pytorch", "bf16 copy of the up weight",
                  precision=_CAST),
            saved("hidden", "activation", _INNER, 2, "megatron_core",
                  "input of GELU: before the bias where adding it is fused, after it elsewhere"),
            saved("down.input", "down", _INNER, 2, "megatron_core", "input of the down projection"),
            saved("down.weight_cast", "down", (HIDDEN, FFN), 2, "pytorch", "bf16 copy of the down weight",
                  precision=_CAST),
        ),
        note="With and without Megatron-Core's fused bias and GELU the same bytes are kept.",
        options={"mlp": ("gelu",)},
        work=(
            *column_parallel("up", "up"),
            Stream("activation", "activation", _INNER, 4, 8, "megatron_core", "bias and GELU in one kernel"),
            *row_parallel("down", "down"), *residual_work("mlp_residual"),
        ),
    ),
)
