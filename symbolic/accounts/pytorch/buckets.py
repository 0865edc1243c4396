"""Buckets of DistributedDataParallel in PyTorch's own step: as large as all gradients, beside which they lie."""

from __future__ import annotations

from ...implementations import Implementation
from ...ledger import Role
from ...parallel.data import SEEKS_UNUSED, bytes_per_element, reduces_in_buckets, states
from ...parallel.groups import GROUPS
from ...terms import TermSet, product, total
from ..rows import components_of
from ..units import kept_by_tensor

#: Name of the line of all buckets.
NAME = "buckets"
#: Components with a number of 4 bytes for every trained parameter: the optimizer's step counters.
_COUNTED = ("layer_part_steps", "mlp_steps", "expert_steps", "adapter_steps", "mlp_adapter_steps", "first_steps",
            "last_steps")


def add_buckets(terms: TermSet, implementation: Implementation) -> None:
    """Add the bytes of rank r in buckets, and of the int32 map of used parameters where they are looked for."""
    choices = implementation.choices
    if not reduces_in_buckets(choices):
        return
    buckets = [
        product(bytes_per_element(states(choices, group), Role.BUFFER), terms[f"stage.{group.prefix}parameters"].symbol)
        for group in GROUPS if f"stage.{group.prefix}parameters" in terms
    ]
    wide = (size for component in components_of(implementation)
            for size in kept_by_tensor(terms, GROUPS[0], Role.BUFFER, component, implementation))
    used = total(*(terms[f"stage.{name}.buffer"].symbol for name in _COUNTED if f"stage.{name}.buffer" in terms))
    terms.add(f"stage.{NAME}.buffer", total(*buckets, *wide, product(SEEKS_UNUSED, used)), "bytes",
              "Buckets of DistributedDataParallel, rank r: copies of gradients, and a map of used parameters")
