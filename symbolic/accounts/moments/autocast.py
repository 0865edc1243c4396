"""16-bit copies of fp32 weights that PyTorch's autocast keeps for later uses until its block ends, behind the loss.

The backward pass keeps the matrices of layers that are not recomputed, and the head's, anyway. Frozen weights are cast
at each use.
"""

from __future__ import annotations

from typing import Any

from sympy import Expr, Integer

from ...implementations import Implementation
from ...ledger import IN_LAYER, Role
from ...parallel.groups import is_frozen
from ...parallel.pipeline import instances
from ...parameters import symbols
from ...terms import TermSet, product, total
from ..rows import kept_rows, local_shape

(rfull,) = symbols("rfull")
_BYTES = Integer(2)


def cached(terms: TermSet, implementation: Implementation) -> Expr:
    """Return bytes of copies that nothing but the cache holds: biases, and matrices of recomputed layers."""
    choices = implementation.choices
    rows = [row for row in kept_rows(implementation)
            if row.tensor.role is Role.WEIGHT and not is_frozen(row.component, choices)]
    linear = {(row.component, row.tensor.module) for row in rows if row.tensor.tokens}
    held = [(row, rfull) for row in rows if row.tensor.tokens and row.component.place in IN_LAYER]
    held += [(row, Integer(1)) for row in rows
             if row.tensor.name.endswith("bias") and (row.component, row.tensor.module) in linear]
    return product(_BYTES, total(*(
        product(instances(row.component.place, choices), when, row.tensor.when,
                *local_shape(row.tensor.shape, choices))
        for row, when in held)))


#: Name, title, moments, size, source and options of each.
SIZES: tuple[Any, ...] = (
    ("autocast_cache", "16-bit copies of weights in autocast's cache", ("loss_forward",), cached, "pytorch",
     {"precision": ("autocast",)}),
)
