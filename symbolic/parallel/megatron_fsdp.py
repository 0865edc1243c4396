"""Megatron-FSDP: optimizer states, gradients and weights shared out by buckets, as in megatron-core 0.16.1.

With weights shared out (``optim_grads_params``) every transformer layer is a unit. All outside of the layers lies in
buckets that are closed when they are large enough, and so do all parameters without units (``optim``, ``optim_grads``).
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Eq, Expr, Integer

from ..functions import Iverson, Max
from ..parameters import symbols

D, c, bz, cu = symbols("D c bz cu")

#: Parameters after which a bucket is closed: so many, and so many for each rank (``bucket_size``).
BUCKET, BUCKET_OF_RANK = Integer(40_000_000), Integer(1_000_000)
#: Elements of unreduced gradients that may wait for their reduction, at least (``suggested_communication_unit_size``).
QUEUE = Integer(1_000_000_000)

#: Switches of ZeRO that the choice frees from what a framework fixes.
FREED = ("zero2", "zero3")


def freed(choices: Mapping[str, str]) -> tuple[str, ...]:
    """Return switches that Megatron-FSDP has although Megatron-Core's own data parallelism fixes them."""
    return FREED if choices["data_parallel"] == "megatron_fsdp" else ()


def bucket_size() -> Expr:
    """Return the elements that close a bucket where gradients are reduced beside the backward pass."""
    return bz + Iverson(Eq(bz, 0)) * Max(BUCKET, BUCKET_OF_RANK * D * c)


def queue_size(unit: Expr) -> Expr:
    """Return the elements that may wait for their reduction, by default those of ``unit`` at least."""
    return cu + Iverson(Eq(cu, 0)) * Max(QUEUE, unit)
