"""CPU offload: what moves to the host, and what stays on the GPU.

The hybrid optimizer of Megatron-Core 0.16.1 moves whole parameters with all of their states until the wanted
share is reached, so a share between 0 and 100 % is exact to within one parameter. Transformer Engine 2.11
moves the saved tensors of the first layers, and its schedule keeps those of the others within the GPU's peak.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer

from ..ledger import IN_LAYER, Place, Role
from ..parameters import symbols

oo, ol = symbols("oo ol")

#: Bytes on the host for an offloaded element: fp32 weight, gradient and both moments.
HOST_BYTES = Integer(16)


def share_on_gpu(role: Role, choices: Mapping[str, str]) -> Expr:
    """The share of the states of a role that stays on the GPU."""
    if role is Role.OPTIMIZER and choices["optimizer_offload"] == "cpu":
        return (100 - oo) / Integer(100)
    return Integer(1)


def moved_layers(place: Place, choices: Mapping[str, str]) -> Expr:
    """The layers whose saved tensors are on the host while the rank peaks."""
    return ol if choices["activation_offload"] == "layers" and place in IN_LAYER else Integer(0)
