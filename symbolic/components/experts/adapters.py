"""Adapters of experts: shared experts have what a dense MLP has, routed ones one each or one in common.

Where one product computes all experts of a rank, Megatron-Bridge gives them one adapter, which every token passes
whatever its expert; ms-swift gives each its own. Their matrices are shared out over the ranks that share the width of
experts. A frozen product keeps no input (``_GroupedLinear`` of Transformer Engine), so that of the adapter is kept.
"""

from __future__ import annotations

from typing import Any

from sympy import Gt

from ...choices import ADDED, TRANSFORMERS_ROUTERS
from ...dimension import ONE, Dimension
from ...dimensions import (
    BATCH,
    EXPERT_FFN,
    EXPERT_GATE_UP,
    EXPERT_HIDDEN_FEATURES,
    EXPERT_LOCAL_RANK,
    EXPERT_SETS,
    EXPERTS,
    EXPERTS_RANK,
    EXPERTS_RANK_TWICE,
    HIDDEN,
    RANK,
    RANK_TWICE,
    RECEIVED,
    ROUTED,
    SCORE,
    SEQUENCE_SP,
    SHARED_FFN,
    SHARED_GATE_UP,
)
from ...functions import Iverson
from ...ledger import Component, Place, Tensor, saved, weight
from ...parameters import symbols
from ...work import NONE, Product, Ranks, Stream, Transfer
from ..adapters import (
    LINEAR_LAYERS,
    TOKENS,
    adapter,
    added,
    casts,
    column_adapter,
    column_work,
    matrix_casts,
    row_adapter,
    row_work,
)
from .router import COPYING, READING

fs, sp, ts, sgate = symbols("fs sp ts sgate")

_SOME = Iverson(fs > 0)
_ROUTED = (RECEIVED,)
_TOKENS = (SEQUENCE_SP, BATCH)
_UP, _DOWN = "experts_up", "experts_down"
#: One adapter for gate and up projection, or one for each.
_JOINED: Any = {"adapter_parts": ("joined",)}
_APART: Any = {"adapter_parts": ("apart",)}
_SHARED_UP, _SHARED_DOWN = "shared_gate_up", "shared_down"
#: Adapters of routed experts: the option, and the dimension of those that have one each.
_SETS: tuple[tuple[str, Dimension], ...] = (("shared", EXPERT_SETS), ("each", EXPERTS))


def _of_routed() -> tuple[Tensor, ...]:
    return (
        saved("gate_up.adapter_input", _UP, (RECEIVED, HIDDEN), 2, "megatron_bridge", "tokens, sorted by expert"),
        saved("down.adapter_input", _DOWN, (RECEIVED, EXPERT_FFN), 2, "megatron_bridge",
              "input of the down projection"),
        *(row for option, sets in _SETS
          for name, module, *sides in (("gate_up", _UP, HIDDEN, EXPERT_GATE_UP, EXPERT_LOCAL_RANK),
                                       ("down", _DOWN, EXPERT_FFN, EXPERT_HIDDEN_FEATURES, RANK))
          for row in adapter(f"{option}.{name}", module, *sides, tokens=_ROUTED, experts=(sets,),
                             expert_adapters=(option,))),
    )


def _of_weights() -> tuple[Tensor, ...]:
    """PEFT adds adapters to the stacked weights of all experts, which are kept as they came out of it.

    An adapter is two matrices for all experts together (``LoraLayer.update_layer`` of PEFT), which FSDP2 cuts by rows.
    """
    hf: Any = {"source": "peft"}
    summed: Any = {"expert_adapters": ("weights",)}
    pairs = (("gate_up", _UP, (EXPERTS_RANK_TWICE, HIDDEN), (EXPERT_GATE_UP, EXPERTS_RANK_TWICE)),
             ("down", _DOWN, (EXPERTS_RANK, EXPERT_FFN), (HIDDEN, EXPERTS_RANK)))
    return (
        *(weight(f"{name}.adapter_{side}", module, shape, "peft", f"matrix that maps {way} the ranks of all experts")
          for name, module, *matrices in pairs
          for side, way, shape in zip("ab", ("to", "from"), matrices, strict=True)),
        *(row for name, module, a, b in pairs for row in matrix_casts(name, module, a, b)),
        saved("gate_up.adapted", _UP, (EXPERTS, EXPERT_GATE_UP, HIDDEN), 2, meaning="adapted weights of all experts",
              **hf),
        saved("down.adapted", _DOWN, (EXPERTS, HIDDEN, EXPERT_FFN), 2, meaning="adapted weights of all experts", **hf),
        saved("gate_up.adapter_input", _UP, (RECEIVED, HIDDEN), 2, meaning="tokens, sorted by expert", **hf),
        saved("down.adapter_input", _DOWN, (RECEIVED, EXPERT_FFN), 2, meaning="input of the down projection", **hf),
        weight("router.adapter_a", "router", (RANK, HIDDEN), "peft", "matrix that maps to the rank", **summed),
        weight("router.adapter_b", "router", (ROUTED, RANK), "peft", "matrix that maps from the rank", **summed),
        *matrix_casts("router", "router", (RANK, HIDDEN), (ROUTED, RANK), **summed),
        *(row for suffix, more in READING for row in (
            saved(f"router.adapted{suffix}", "router", (ROUTED, HIDDEN), 2, meaning="adapted weights of the router",
                  **hf, **summed, **more),
            saved(f"router.input{suffix}", "router", (SEQUENCE_SP, BATCH, HIDDEN), 2, meaning="input of the router",
                  storage="experts.normed", **hf, **summed, **more),
        )),
        *(saved(f"router.input_fp32{suffix}", "router", (SEQUENCE_SP, BATCH, HIDDEN), 4,
                meaning="fp32 copy of the router's input", **hf, **summed, **more) for suffix, more in COPYING),
    )


def _of_shared() -> tuple[Tensor, ...]:
    gate: Any = {"when": _SOME * sgate, **_APART}
    return (
        # On one rank of Megatron-Core that is the input of the router, which keeps it.
        saved("gate_up.adapter_input", _SHARED_UP, (*TOKENS, HIDDEN), 2, "megatron_bridge",
              "input of the adapters, gathered from sequence-parallel ranks", when=_SOME * Iverson(Gt(ts, 1))),
        *column_adapter("gate_up", _SHARED_UP, SHARED_GATE_UP, _SOME, **_JOINED),
        *(row for name in ("gate", "up") for row in column_adapter(name, _SHARED_UP, SHARED_FFN, _SOME, **_APART)),
        saved("down.adapter_input", _SHARED_DOWN, (*TOKENS, SHARED_FFN), 2, "megatron_bridge",
              "input of the down projection", adapter_precision=("low",)),
        *row_adapter("down", _SHARED_DOWN, SHARED_FFN, _SOME),
        weight("shared_gate.adapter_a", "shared_gate", (RANK, HIDDEN), "peft", "matrix that maps to the rank",
               tokens=TOKENS, **gate),
        weight("shared_gate.adapter_b", "shared_gate", (SCORE, RANK), "peft", "row that maps from the rank", **gate),
        saved("shared_gate.adapter_between", "shared_gate", (*TOKENS, RANK), 2, "peft", "output of the first matrix",
              **gate),
        saved("input", _SHARED_UP, (SEQUENCE_SP, BATCH, HIDDEN), 2, "peft", "input of the adapters",
              storage="experts.normed", when=_SOME, router=TRANSFORMERS_ROUTERS, adapter_precision=("low",)),
        *casts("shared_gate", "shared_gate", HIDDEN, (RANK, HIDDEN), (SCORE, RANK), **gate),
    )


def _gathered(name: str, module: str, width: Dimension, meaning: str) -> Transfer:
    """Return a transfer among ranks that share the width of experts: each takes its part of the gradient."""
    return Transfer(name, module, Ranks.EXPERT_TENSOR, (RECEIVED, width), 2, ONE, NONE, "megatron_bridge", meaning)


COMPONENTS = (
    Component(
        "expert_adapters", "Adapters of routed experts", 50, Place.EXPERTS, _of_routed(),
        options={"adapters": ("all_linear",), "layers": ("experts",), "expert_adapters": ("shared", "each")},
        work=(
            *added("gate_up", _UP, HIDDEN, EXPERT_GATE_UP, _ROUTED),
            _gathered("gate_up.adapter_between", _UP, RANK, "output of the first matrix gathered whole"),
            *added("down", _DOWN, EXPERT_FFN, HIDDEN, _ROUTED),
            _gathered("down.adapter_output", _DOWN, HIDDEN, "output of the adapter gathered whole"),
        ),
    ),
    Component(
        "expert_weight_adapters", "Adapters added to the weights of experts", 50, Place.EXPERTS, _of_weights(),
        options={"adapters": ("all_linear",), "layers": ("experts",), "expert_adapters": ADDED},
        work=(Product("router.adapted", "router", (ROUTED,), (RANK,), (HIDDEN,), "peft",
                      "adapters of the router multiplied and added to its weights",
                      options={"expert_adapters": ("weights",)}), *(
            item for name, module, inputs, outputs, rank in (
                ("gate_up", _UP, HIDDEN, EXPERT_GATE_UP, RANK_TWICE), ("down", _DOWN, EXPERT_FFN, HIDDEN, RANK))
            for item in (
                Product(f"{name}.adapted", module, (EXPERTS, outputs), (rank,), (inputs,), "peft",
                        "adapters of all experts multiplied and added to their weights"),
                Stream(f"{name}.adapted", module, (EXPERTS, outputs, inputs), 4, 8, "peft",
                       "weights read and adapted ones written; their gradient written and read", 1),
            )
        )),
    ),
    Component(
        "router_adapters", "Adapters of a router that is a linear layer", 46, Place.EXPERTS,
        (
            *adapter("router", "router", HIDDEN, ROUTED, RANK, tokens=_TOKENS),
            saved("router.adapter_input", "router", (*_TOKENS, HIDDEN), 2, "peft", "input of the router",
                  storage="experts.normed", adapter_precision=("low",)),
            *casts("router", "router", HIDDEN, (RANK, HIDDEN), (ROUTED, RANK)),
        ),
        options={"adapters": ("all_linear",), "layers": ("experts",), "expert_adapters": ("weights_alone",)},
        work=added("router", "router", HIDDEN, ROUTED, _TOKENS),
    ),
    Component(
        "shared_expert_adapters", "Adapters of shared experts", 51, Place.EXPERTS, _of_shared(),
        options={"adapters": ("all_linear",), "layers": ("experts",), "expert_adapters": LINEAR_LAYERS},
        work=(
            Transfer("gate_up.adapter_input", _SHARED_UP, Ranks.TENSOR, (*TOKENS, HIDDEN), 2, sp, sp,
                     "megatron_bridge", "input of the adapter gathered, its gradient reduced", when=_SOME),
            *column_work("gate_up", _SHARED_UP, SHARED_GATE_UP, _SOME, **_JOINED),
            *(row for name in ("gate", "up") for row in column_work(name, _SHARED_UP, SHARED_FFN, _SOME, **_APART)),
            *row_work("down", _SHARED_DOWN, SHARED_FFN, _SOME),
        ),
    ),
)
