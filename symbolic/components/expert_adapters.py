"""Adapters of experts: shared experts have what a dense MLP has, routed ones one each or one in common.

Where one product computes all experts of a rank, Megatron-Bridge gives them one adapter, which every token passes
whatever its expert; ms-swift gives each its own. Their matrices are shared out over the ranks that share the width of
experts. A frozen product keeps no input (``_GroupedLinear`` of Transformer Engine), so that of the adapter is kept.
"""

from __future__ import annotations

from sympy import Gt

from ..dimension import ONE, Dimension
from ..dimensions import (
    EXPERT_FFN,
    EXPERT_GATE_UP,
    EXPERT_HIDDEN_FEATURES,
    EXPERT_LOCAL_RANK,
    EXPERT_SETS,
    EXPERTS,
    HIDDEN,
    RANK,
    RECEIVED,
    SHARED_FFN,
    SHARED_GATE_UP,
)
from ..functions import Iverson
from ..ledger import Component, Place, Tensor, saved
from ..parameters import symbols
from ..work import NONE, Ranks, Transfer
from .adapters import TOKENS, adapter, added, column_adapter, column_work, row_adapter, row_work

fs, sp, ts = symbols("fs sp ts")

_SOME = Iverson(fs > 0)
_ROUTED = (RECEIVED,)
_UP, _DOWN = "experts_up", "experts_down"
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


def _of_shared() -> tuple[Tensor, ...]:
    return (
        # On one rank that is the input of the router, which keeps it.
        saved("gate_up.adapter_input", _SHARED_UP, (*TOKENS, HIDDEN), 2, "megatron_bridge",
              "input of the adapters, gathered from sequence-parallel ranks", when=_SOME * Iverson(Gt(ts, 1))),
        *column_adapter("gate_up", _SHARED_UP, SHARED_GATE_UP, _SOME),
        saved("down.adapter_input", _SHARED_DOWN, (*TOKENS, SHARED_FFN), 2, "megatron_bridge",
              "input of the down projection"),
        *row_adapter("down", _SHARED_DOWN, SHARED_FFN, _SOME),
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
        "shared_expert_adapters", "Adapters of shared experts", 51, Place.EXPERTS, _of_shared(),
        options={"adapters": ("all_linear",), "layers": ("experts",)},
        work=(
            Transfer("gate_up.adapter_input", _SHARED_UP, Ranks.TENSOR, (*TOKENS, HIDDEN), 2, sp, sp,
                     "megatron_bridge", "input of the adapter gathered, its gradient reduced", when=_SOME),
            *column_work("gate_up", _SHARED_UP, SHARED_GATE_UP, _SOME),
            *row_work("down", _SHARED_DOWN, SHARED_FFN, _SOME),
        ),
    ),
)
