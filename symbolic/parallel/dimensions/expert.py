"""Expert parallelism: whole routed experts."""

from __future__ import annotations

from ...dimensions import EXPERT_SETS, EXPERTS
from ...functions import Divides
from ...parameters import symbols
from ..rules import GroupOfRanks, ParallelRule, Rule, Split

e, et, E = symbols("e et E")

RULE = ParallelRule(
    "expert_parallel", "Expert parallelism (EP)", e, {EXPERTS: Split.EVEN, EXPERT_SETS: Split.EVEN},
    "Routed experts are shared out over ranks that hold different tokens; router and shared experts are not.",
    "megatron_core",
    order=40,
    rules=(
        Rule("experts", "e", Divides(e, E), "must divide num_experts"),
    ),
    options={"layers": ("experts",)},
    groups=(GroupOfRanks("expert", e, "ranks that share out experts", 52, et, pairs={"dispatch": ("alltoall",)}),),
)
