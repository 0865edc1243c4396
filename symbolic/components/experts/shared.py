"""Shared experts: one MLP that every token passes beside its routed experts, and a gate for what it returns."""

from __future__ import annotations

from typing import Any

from ...choices import GATED, UNGATED
from ...dimensions import (
    BATCH,
    HIDDEN,
    HIDDEN_SCALES,
    SCORE,
    SEQUENCE,
    SEQUENCE_SP,
    SHARED_FFN,
    SHARED_FFN_SCALES,
    SHARED_GATE_UP,
)
from ...functions import Iverson
from ...ledger import Component, Place, Tensor, saved, weight
from ...parameters import symbols
from ...work import Product, Stream
from ...work_rows import column_parallel, gated_work, residual_work, row_parallel, ungated_work
from ..quantised import ONCE_ONLY, quantised

fs, sgate = symbols("fs sgate")

_RESIDUAL = (SEQUENCE_SP, BATCH, HIDDEN)
_INNER = (SEQUENCE, BATCH, SHARED_FFN)
_TOKENS = (SEQUENCE, BATCH)
_SOME = Iverson(fs > 0)
_GATED: Any = {"mlp": GATED}
_UNGATED: Any = {"mlp": UNGATED}


def _rows() -> tuple[Tensor, ...]:
    core, hf = "megatron_core", "transformers"
    return (
        weight("gate_up.weight", "shared_gate_up", (SHARED_GATE_UP, HIDDEN), core, "fused gate and up projection",
               tokens=_TOKENS, projections=("fused", "gate_up"), **_GATED),
        *(weight(f"{name}_proj.weight", "shared_gate_up", (SHARED_FFN, HIDDEN), hf, f"{name} projection",
                 tokens=_TOKENS, projections=("separate", "qkv"), **_GATED) for name in ("gate", "up")),
        weight("up.weight", "shared_gate_up", (SHARED_FFN, HIDDEN), core, "up projection", tokens=_TOKENS, **_UNGATED),
        weight("down.weight", "shared_down", (HIDDEN, SHARED_FFN), core, "down projection", tokens=_TOKENS),
        weight("gate.weight", "shared_gate", (SCORE, HIDDEN), "qwen2", "gate of shared experts, on every rank",
               sgate),
        # The input is the router's, which keeps it whether the shared experts are recomputed or not.
        saved("gate", "shared_activation", _INNER, 2, core, "gate projection, input of SiLU", **_GATED),
        saved("up", "shared_activation", _INNER, 2, core, "up projection"),
        saved("silu", "shared_activation", _INNER, 2, hf, "SiLU of the gate projection", swiglu=("eager", "unfused"),
              **_GATED),
        saved("up_copy", "shared_activation", _INNER, 2, core, "up projection plus an offset of 0",
              swiglu=("unfused",), **_GATED),
        *quantised("gate_up.input", "shared_gate_up", _RESIDUAL[:2], (HIDDEN, HIDDEN_SCALES), recipes=ONCE_ONLY,
                   when=_SOME),
        saved("down.input", "shared_down", _INNER, 2, core, "input of the down projection", fp8=("none",),
              adapters=("none",)),
        *quantised("down.input", "shared_down", _TOKENS, (SHARED_FFN, SHARED_FFN_SCALES), when=_SOME),
        saved("result", "combined_passes", _RESIDUAL, 2, core, "result of the shared experts", when=_SOME,
              expert_passes=("combined",)),
        saved("gate.score", "shared_gate", (SEQUENCE_SP, BATCH), 2, core, "sigmoid of the gate", when=sgate * _SOME),
        saved("gate.result", "shared_gate", _RESIDUAL, 2, core, "result of the shared experts before the gate",
              when=sgate * _SOME),
    )


COMPONENTS = (
    Component(
        "shared_experts", "Shared experts", 51, Place.EXPERTS, _rows(),
        note="Sharded by tensor parallelism like a dense MLP, never by expert parallelism.",
        options={"layers": ("experts",)},
        work=(
            Product("gate", "shared_gate", (SEQUENCE_SP, BATCH), (HIDDEN,), (), "qwen2", "one score for every token",
                    when=sgate * _SOME),
            Stream("gate", "shared_gate", _RESIDUAL, 4, 12, "qwen2", "result times the sigmoid of its gate",
                   when=sgate * _SOME),
            *column_parallel("gate_up", "shared_gate_up", _SOME), *gated_work("shared_activation", _INNER, **_GATED),
            *ungated_work("shared_activation", _INNER, weighted=False, **_UNGATED),
            *row_parallel("down", "shared_down", _SOME), *residual_work("sum", "dispatch", _SOME),
        ),
    ),
)
