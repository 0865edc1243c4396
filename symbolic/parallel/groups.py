"""Groups of parameters that are laid out and kept alike: routed experts, FP8 ones and frozen ones have their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ledger import Component, Tensor
from .weights import is_linear


@dataclass(frozen=True)
class Group:
    """Parameters that are laid out and kept alike; ``prefix`` starts the names of their terms.

    Those of routed experts have data-parallel ranks of their own, FP8 ones a buffer of their own, and frozen
    ones neither gradients nor optimizer states.
    """

    prefix: str
    words: str
    expert: bool = False
    frozen: bool = False
    fp8: bool = False


#: Trained linear weights in FP8.
FP8 = Group("fp8_", "FP8 parameters", fp8=True)
#: All groups; which of them have parameters is a matter of the choices.
GROUPS: tuple[Group, ...] = (
    Group("", "parameters"),
    FP8,
    Group("frozen_", "frozen parameters", frozen=True),
    Group("frozen_fp8_", "frozen FP8 parameters", frozen=True, fp8=True),
    Group("expert_", "parameters of routed experts", expert=True),
    Group("expert_frozen_", "frozen parameters of routed experts", expert=True, frozen=True),
    Group("expert_fp8_", "FP8 parameters of routed experts", expert=True, fp8=True),
    Group("expert_frozen_fp8_", "frozen FP8 parameters of routed experts", expert=True, frozen=True, fp8=True),
)


def group_of(component: Component, tensor: Tensor, expert: bool, choices: Mapping[str, str]) -> Group:
    """Return the group of a parameter."""
    fp8 = choices["fp8"] != "none" and choices["fp8_weights"] == "primary" and is_linear(component, tensor)
    frozen = is_frozen(component, choices)
    return next(group for group in GROUPS if (group.expert, group.frozen, group.fp8) == (expert, frozen, fp8))


def is_frozen(component: Component, choices: Mapping[str, str]) -> bool:
    """Return True for a component whose weights have neither gradients nor optimizer states, beside adapters."""
    return choices["adapters"] != "none" and "adapters" not in component.options
