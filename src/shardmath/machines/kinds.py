"""Kernel choices on a cluster of several kinds of GPUs, and what nobody may declare there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS, NEEDED

if TYPE_CHECKING:
    from shardmath.machines.cluster import Cluster

#: The axis that says whether stages have GPUs of their own, and its option for that.
AXIS, MIXED = "gpus", "mixed"
#: Parameters that each kind gives, or that mean one GPU: what nobody may declare, with the rule and a legal value.
_NOT_DECLARED: Mapping[str, tuple[str, str | None]] = {
    "node_size": ("must be given as gpus_per_node of each kind of GPU", None),
    "pipeline_place": ("must be 0 on several kinds of GPUs: a stage is on GPUs that follow each other", "0"),
}


def kernels_on(
    cluster: Cluster, implementation: str, kernels: Mapping[str, str] | None, declared: Mapping[str, object],
) -> Mapping[str, str] | None:
    """Return the kernel choices on a cluster, which has one kind of GPU or several.

    Raises InputError for choices and for ``declared`` parameters that contradict it.
    """
    asked = (kernels or {}).get(AXIS)
    if not cluster.kinds:
        if asked == MIXED:
            raise InputError(AXIS, MIXED, "must not be given without kinds in a cluster file", "alike")
        return kernels
    for name, (rule, near) in _NOT_DECLARED.items():
        if declared.get(name):
            raise InputError(name, declared[name], rule, near)
    known = [name for name in IMPLEMENTATIONS if MIXED in IMPLEMENTATIONS[name]["allowed"].get(AXIS, (MIXED,))]
    if implementation in IMPLEMENTATIONS and implementation not in known:
        raise InputError("implementation", implementation, f"must be {' or '.join(known)} on several kinds of GPUs:"
                         " others are not counted yet", " or ".join(known))
    if asked not in (None, MIXED):
        raise InputError(AXIS, asked, "must be mixed with several kinds in the cluster file", MIXED)
    return {**NEEDED[AXIS][MIXED], **(kernels or {}), AXIS: MIXED}
