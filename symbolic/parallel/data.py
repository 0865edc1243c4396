"""Data parallelism: what a rank keeps for each parameter, and which ranks share it out (ZeRO)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Eq, Expr, Integer

from ..functions import Iverson, LeastCommonMultiple, pad_to
from ..ledger import Role
from ..parameters import symbols

D, c, t, e, et, R, w, De = symbols("D c t e et R w De")
zero1, zero2, zero3, shards, eshards = symbols("zero1 zero2 zero3 shards eshards")

#: Elements to which a parameter's start is aligned in the buffers of the distributed optimizer.
START_ALIGNMENT = Integer(64)
#: The end of a buffer is padded to the least common multiple of this and the number of shards.
END_ALIGNMENT = Integer(128)


@dataclass(frozen=True)
class State:
    """Something kept for every parameter: its bytes per element, and why."""

    name: str
    role: Role
    bytes: Expr
    meaning: str
    source: str


#: Weights, gradients and master weights of each precision; the optimizer's own states follow.
PRECISIONS: dict[str, tuple[State, ...]] = {
    "mixed": (
        State("weight", Role.WEIGHT, Integer(2), "bf16 weight", "megatron_core"),
        State("main_gradient", Role.GRADIENT, w, "gradient, fp32 or bf16", "megatron_core"),
        State("master_weight", Role.OPTIMIZER, Integer(4), "fp32 master weight", "megatron_core"),
        State("gradient_fp32", Role.OPTIMIZER, 4 * Iverson(Eq(w, 2)),
              "fp32 copy of bf16 gradients, kept after the first step", "megatron_core"),
    ),
    "bf16": (
        State("weight", Role.WEIGHT, Integer(2), "bf16 weight", "pytorch"),
        State("gradient", Role.GRADIENT, Integer(2), "bf16 gradient", "pytorch"),
    ),
    "autocast": (
        State("weight", Role.WEIGHT, Integer(4), "fp32 weight", "pytorch"),
        State("gradient", Role.GRADIENT, Integer(4), "fp32 gradient", "pytorch"),
    ),
}

#: Bytes of one moment: fp32 where the master weights are, else the weights' own precision.
_MOMENT = {"mixed": ("fp32", 4, "megatron_core"), "bf16": ("bf16", 2, "pytorch"), "autocast": ("fp32", 4, "pytorch")}


def states(choices: Mapping[str, str]) -> tuple[State, ...]:
    """All that a rank keeps for a parameter under these choices of precision and optimizer."""
    precision = choices["precision"]
    return (*PRECISIONS[precision], *_moments(choices["optimizer"], precision))


def _moments(optimizer: str, precision: str) -> tuple[State, ...]:
    name, size, source = _MOMENT[precision]
    return {
        "adamw": (
            State("exp_avg", Role.OPTIMIZER, Integer(size), f"{name} first moment", source),
            State("exp_avg_sq", Role.OPTIMIZER, Integer(size), f"{name} second moment", source),
        ),
    }[optimizer]


#: Ranks that hold the same routed experts: those of the stage that are left beside EP and expert TP.
EXPERT_DATA_PARALLEL = D * c * t / (e * et)


def definitions(choices: Mapping[str, str]) -> dict[str, Expr]:
    """The derived symbols of data parallelism, in computing order.

    The states are shared out over data times context parallelism, in as many groups as there are replicas.
    """
    found = {"shards": _over(zero1, D * c / R)}
    if choices["layers"] == "experts":
        # Without expert parallelism Megatron-Core lays experts into the buffer of all other parameters.
        ranks = De if choices["data_parallel"] == "fsdp" else Iverson(e > 1) * De + Iverson(Eq(e, 1)) * D * c
        found |= {"De": EXPERT_DATA_PARALLEL, "eshards": _over(zero1, ranks / R)}
    return found


def _over(switch: Expr, ranks: Expr) -> Expr:
    return Integer(1) + switch * (ranks - 1)


def sharing_ranks(role: Role, fixed: Mapping[str, int], expert: bool) -> Expr:
    """The number of ranks that share the states of a role: the optimizer's with ZeRO-1, gradients 2, weights 3."""
    if role is Role.OPTIMIZER:
        return eshards if expert else shards
    switch = {Role.GRADIENT: "zero2", Role.WEIGHT: "zero3"}[role]
    ranks = (De if expert else D * c) / R
    return _over(Integer(fixed[switch]) if switch in fixed else {"zero2": zero2, "zero3": zero3}[switch], ranks)


def fixed_by_choices(choices: Mapping[str, str]) -> dict[str, int]:
    """Letters that have only one value with a precision or a kind of data parallelism."""
    gradient = next(state.bytes for state in PRECISIONS[choices["precision"]] if state.role is Role.GRADIENT)
    fixed = {"w": int(gradient)} if gradient.is_Integer else {}
    if choices["data_parallel"] == "fsdp":
        fixed |= {"zero1": 1, "zero2": 1, "zero3": 1}
    return fixed


def aligned(shape: tuple[Expr, ...], choices: Mapping[str, str], ranks: Expr) -> Expr:
    """Elements that one parameter takes: at an aligned start in one buffer, or its first dimension padded."""
    elements: Expr = Integer(1)
    for size in shape:
        elements *= size
    if choices["data_parallel"] == "fsdp":
        return pad_to(shape[0], ranks) * elements / shape[0]
    return pad_to(elements, START_ALIGNMENT)


def buffer_elements(parameters: Expr, aligned_parameters: Expr, choices: Mapping[str, str], ranks: Expr) -> Expr:
    """Elements of a rank's parameters with their padding.

    The distributed optimizer lays all parameters into one buffer and pads its end so that every
    shard has the same number of elements; without it there is no buffer and no padding.
    """
    if choices["data_parallel"] == "fsdp":
        return aligned_parameters
    padded = pad_to(aligned_parameters, LeastCommonMultiple(ranks, END_ALIGNMENT))
    return parameters + zero1 * (padded - parameters)


def bytes_per_element(kept: tuple[State, ...], role: Role) -> Expr:
    """Bytes kept for every element in one role, before they are shared out."""
    return sum((state.bytes for state in kept if state.role is role), Integer(0))
