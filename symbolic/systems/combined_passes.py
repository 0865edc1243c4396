"""Tokens on their way to experts beside another micro-batch: Megatron-Core's combined forward and backward passes.

With ``overlap_moe_expert_parallel_comm`` a chunk's forward pass and the backward pass of another one, or of the same
one for the micro-batch before, run layer by layer in turns. A layer is cut into parts (attention and router, tokens
sent, experts, results sent back), each a graph of its own, so that the output of a part is held until its backward
pass: the result of shared experts, and the weights of tokens as they arrived. Tokens on their way are let go of.

A forward pass more runs before the first backward pass. Each later one begins when a micro-batch has yet to go back, so
the same chunks are in flight, and beside them the parts of one layer and the gradients on their way.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Eq, Ge, Gt, Or

from ..axis import Axis
from ..expert_layers import experts_before
from ..parallel.rules import Rule
from ..parameters import symbols
from .system import Aspect, Choices, System

NAME = "expert_passes"
COMBINED = ("combined",)
E, e, et, p, V, L, mtp, rfull, rmoe = symbols("E e et p V L mtp rfull rmoe")

_BESIDE = "with expert_passes = combined"


def are_combined(choices: Choices) -> bool:
    """Tell whether a forward pass and a backward pass take turns."""
    return choices[NAME] in COMBINED


def _rules(choices: Choices) -> Sequence[Rule]:
    if not are_combined(choices):
        return ()
    several = Ge(V, 2) if choices["schedule"] == "interleaved" else False
    return (
        Rule("combined_ranks", "e", Ge(e, 2), f"must be 2 or more {_BESIDE}, which hides what they send"),
        Rule("combined_experts", "e", Gt(E, e), f"must be less than num_experts {_BESIDE}: of a single expert"
             " Megatron-Core lets go of tokens that its weight gradient reads"),
        Rule("combined_width", "et", Eq(et, 1), f"must be 1 {_BESIDE}: not counted yet otherwise"),
        Rule("combined_chunks", "p", Or(Eq(p, 1), several), f"must be 1 {_BESIDE} unless a rank has several chunks"
             " (schedule = interleaved)"),
        Rule("combined_end", "L", Eq(experts_before(L) - experts_before(L - 1), 1),
             f"must end with a layer of experts {_BESIDE}: behind another one Megatron-Core leaves out the final norm"),
        Rule("combined_recompute", "rfull", Eq(rfull, 0), f"must be 0 {_BESIDE}, which Megatron-Core refuses"),
        Rule("combined_moe", "rmoe", Eq(rmoe, 0), f"must be 0 {_BESIDE}: parts of a layer run without its checkpoint"),
        Rule("combined_mtp", "mtp", Eq(mtp, 0), f"must be 0 {_BESIDE}: further predictions are not counted yet"),
    )


SYSTEM = System(
    Axis(NAME, "passes of layers with experts", {
        "apart": "a forward pass, then a backward pass",
        "combined": "a forward pass and the backward pass of another micro-batch, layer by layer"
                    " (--overlap-moe-expert-parallel-comm)",
    }),
    ("megatron",),
    words="combined passes of experts", changes=(Aspect.PASSES,), apart=(Aspect.RANKS, Aspect.SAVED),
    counted={
        "layers": ("experts",), "mlp": ("swiglu",), "dispatch": ("alltoall",), "expert_products": ("grouped",),
        "fp8": ("none",), "adapters": ("none",), "peak": ("saved", "megatron_te"), "stages": ("even", "uneven"),
        "data_parallel": ("ddp",), "documents": ("one",),
    },
    rules=_rules,
)
