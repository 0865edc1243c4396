"""Tensor parallelism of routed experts."""

from __future__ import annotations

from sympy import Integer

from ...dimensions import (
    EXPERT_FFN,
    EXPERT_FFN_SCALES,
    EXPERT_GATE_UP,
    EXPERT_HIDDEN_FEATURES,
    EXPERT_LOCAL_RANK,
)
from ...expert_layers import FLEX
from ...functions import Divides
from ...parameters import symbols
from ..rules import GroupOfRanks, ParallelRule, Rule, Split

et, e, fe, R, D, c, t = symbols("et e fe R D c t")

RULE = ParallelRule(
    "expert_tensor_parallel", "Expert tensor parallelism (ETP)", et,
    {
        EXPERT_FFN: Split.EVEN, EXPERT_FFN_SCALES: Split.EVEN, EXPERT_GATE_UP: Split.EVEN,
        EXPERT_LOCAL_RANK: Split.EVEN, EXPERT_HIDDEN_FEATURES: Split.EVEN,
    },
    "The inner width of routed experts is shared out over ranks that all work on the same tokens; it need not be"
    " the tensor parallelism of the other layers.",
    "megatron_core",
    order=50,
    rules=(
        Rule("expert_ffn", "et", Divides(et, fe), "must divide moe_ffn_hidden_size"),
        Rule("expert_ranks", "e", Divides(e * et, D * c * t),
             "times expert_tensor_parallel must divide tensor_parallel * context_parallel * data_parallel"),
        Rule("expert_replicas", "R", Divides(R * e * et, D * c * t),
             "times the ranks that share out experts must divide tensor_parallel * context_parallel * data_parallel"),
    ),
    options={"layers": ("experts",)},
    groups=(
        GroupOfRanks("expert_tensor", et, "ranks that share the width of experts", 50, Integer(1)),
        GroupOfRanks("expert_all", e * et, "ranks that share out experts and their width", 54, Integer(1),
                     pairs={"dispatch": FLEX}),
    ),
)
