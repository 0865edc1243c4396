"""Conditions that Megatron-LM asserts when it starts, and that an account of memory and time does not need.

Each is in ``validate_args`` of ``megatron/training/arguments.py`` or in the classes of configuration of Megatron-Core
(release 0.16.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shardmath.errors import InputError

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation

Condition = Callable[["Explanation"], bool]
_RULES: tuple[tuple[str, Condition, Condition, str], ...] = (
    ("overlap_param_gather", lambda run: bool(run.switches["overlap_param_gather"]),
     lambda run: bool(run.switches["overlap_grad_reduce"]), "must be given with overlap_grad_reduce"),
    ("overlap_param_gather", lambda run: bool(run.switches["overlap_param_gather"]),
     lambda run: bool(run.inputs["distributed_optimizer"]), "must be given with distributed_optimizer"),
    ("overlap_grad_reduce", lambda run: bool(run.switches["overlap_grad_reduce"]),
     lambda run: run.choices["optimizer"] not in ("muon", "dist_muon"), "must be 0 with optimizer = muon or dist_muon"),
    ("tp_comm_overlap", lambda run: bool(run.switches["tp_comm_overlap"]),
     lambda run: bool(run.inputs["sequence_parallel"]), "must be given with sequence_parallel"),
    ("balance", lambda run: bool(run.model.num_experts) and run.choices["balance"] in ("bias", "both"),
     lambda run: run.model.expert_scores == "sigmoid", "must be loss or none where scores are no sigmoids"),
    ("expert_scores", lambda run: run.model.moe_topk == 1, lambda run: run.model.expert_scores != "softmax",
     "must be softmax_all or sigmoid where a token goes to one expert"),
)
"""Conditions: a name, where it applies, the test, and the rule."""


def refuse_what_does_not_start(run: Explanation) -> None:
    """Raise InputError for the first condition of Megatron-LM that the run breaks."""
    for name, applies, holds, rule in _RULES:
        if applies(run) and not holds(run):
            value = {**run.model.model_dump(), **run.choices, **run.switches}[name]
            raise InputError(name, value, f"{rule}: Megatron-LM asserts it")
