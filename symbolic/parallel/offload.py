"""CPU offload: what moves to the host, and what stays on the GPU.

The hybrid optimizer of Megatron-Core 0.16.1 goes through the parameters and moves whole ones, with all of their
states, until the wanted share is reached. So shares of 0 and 100 % are exact, and between them a rank keeps at most
what is written here, and less than one parameter's states below it. It comes with the flags of the
precision-aware optimizer, but what stays on the GPU has fp32 master weights and moments whatever these say.

Transformer Engine's CPU offload moves saved tensors of a MiB of elements or more, of the first layers. Layer i of n
has left when layer L - n + i starts, and comes back when the backward pass has come as far, so that never more than
L - n layers are there.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer

from ..functions import Iverson
from ..ledger import IN_LAYER, Place, Role
from ..parameters import symbols

oo, ol = symbols("oo ol")

#: Bytes on the host for an offloaded element: fp32 weight, gradient and both moments.
HOST_BYTES = Integer(16)
#: Elements of the smallest saved tensor that is moved.
SMALLEST_MOVED = Integer(2**20)


def share_on_gpu(role: Role, choices: Mapping[str, str]) -> Expr:
    """The share of the states of a role that stays on the GPU."""
    if role is Role.OPTIMIZER and choices["optimizer_offload"] == "cpu":
        return (100 - oo) / Integer(100)
    return Integer(1)


def moved(elements: Expr, place: Place, choices: Mapping[str, str]) -> Expr:
    """A 0/1 expression: whether a saved tensor of so many elements is moved in the layers that are offloaded."""
    if choices["activation_offload"] != "layers" or place not in IN_LAYER:
        return Integer(0)
    return Iverson(elements > SMALLEST_MOVED - 1)
