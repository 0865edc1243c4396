"""Frozen weights at the moments of a step: units that FSDP gathers, and 4-bit matrices while a product reads them.

FSDP2 holds the unit of embedding, final norm and head from the forward pass to the end of the backward pass where it
does not free it, one layer at work and the next one ahead. Where the moments of PyTorch's own step are not counted, all
get the most that it can be; they unpack each matrix at its product.
"""

from __future__ import annotations

from typing import Any

from sympy import Expr, Integer

from ...choices import ADAPTED
from ...dimensions import BATCH, SEQUENCE
from ...functions import Max, pad_to
from ...implementations import Implementation
from ...ledger import IN_LAYER, Role
from ...parallel.groups import is_frozen
from ...parallel.int8 import passing_bytes
from ...parallel.nf4 import dequantised_bytes, packed
from ...parallel.weights import is_linear, shapes, weight_of
from ...parameters import symbols
from ...terms import Contribution, TermSet, product, total
from ..rows import kept_rows, local_shape

(shards,) = symbols("shards")

#: Bytes of an element as it is gathered: a weight or four codes in 16 bits.
GATHERED = Integer(2)


def weight_rows(implementation: Implementation, inside: bool, trained: bool = False) -> tuple[Contribution, ...]:
    """Return the rows of weights in layers, or outside of them; ``trained``: without frozen ones."""
    return tuple(
        row for row in kept_rows(implementation)
        if row.tensor.role is Role.WEIGHT and (row.component.place in IN_LAYER) is inside
        and not (trained and is_frozen(row.component, implementation.choices))
    )


def units_of(row: Contribution, implementation: Implementation, matrices: bool = False) -> tuple[Expr, ...]:
    """Return the elements that each parameter of a row is shared out as; ``matrices``: without vectors."""
    choices = implementation.choices
    sizes = (local_shape(shape, choices) for shape in shapes(row.tensor, choices) if not matrices or len(shape) > 1)
    if is_packed(row, implementation):
        return tuple(packed(weight_of(row.component, row.tensor, shape)) for shape in sizes)
    return tuple(product(*shape) for shape in sizes)


def largest_matrix(implementation: Implementation, inside: bool, trained: bool = False) -> Expr:
    """Return the elements of the largest matrix in the layers, or of all others; ``trained``: no frozen ones."""
    return Max(Integer(0), *(
        size for row in weight_rows(implementation, inside, trained) for size in units_of(row, implementation, True)
    ))


def is_packed(row: Contribution, implementation: Implementation) -> bool:
    """Return True for a weight that is kept in 4 bits."""
    return _is_quantised(row, implementation, "nf4")


def _is_quantised(row: Contribution, implementation: Implementation, kind: str) -> bool:
    choices = implementation.choices
    return (choices["base_weights"] == kind and is_linear(row.component, row.tensor)
            and is_frozen(row.component, choices))


def _unit(implementation: Implementation, inside: bool) -> Expr:
    """Return bytes of one layer, or of all outside of the layers, with the padding of their shards."""
    return product(GATHERED, total(*(
        product(row.tensor.when, pad_to(size, shards))
        for row in weight_rows(implementation, inside) for size in units_of(row, implementation)
    )))


def gathered(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the unit outside of the layers and two layers."""
    return _unit(implementation, False) + 2 * _unit(implementation, True)


def _dequantised(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the largest matrix of a layer, in bf16 beside its codes."""
    choices = implementation.choices
    return Max(*(
        dequantised_bytes(product(*local_shape(shape, choices)))
        for row in weight_rows(implementation, True) if is_packed(row, implementation)
        for shape in shapes(row.tensor, choices)
    ))


def _passing(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the most that the product of a layer with a matrix of 8 bits makes besides its output."""
    choices = implementation.choices
    tokens = product(*local_shape((SEQUENCE, BATCH), choices))
    return Max(*(
        passing_bytes(outputs, inputs, tokens)
        for row in weight_rows(implementation, True) if _is_quantised(row, implementation, "int8")
        for shape in shapes(row.tensor, choices) for outputs, inputs in [local_shape(shape, choices)]
    ))


_ADAPTED: Any = {"adapters": ADAPTED}
_STEP = ("after_forward", "loss_forward", "loss_backward", "head_backward", "layer_backward")

#: Name, title, moments, size, source and options of each.
SIZES: tuple[Any, ...] = (
    ("gathered_units", "Gathered parameters, at most", _STEP, gathered, "pytorch",
     {**_ADAPTED, "data_parallel": ("fsdp",), "peak": ("saved",)}),
    ("dequantised", "Matrix of 4 bits in bf16 while a product reads it", ("layer_backward",), _dequantised,
     "bitsandbytes", {**_ADAPTED, "base_weights": ("nf4",), "peak": ("saved",)}),
    ("passing_products", "Products with matrices of 8 bits, at most", ("layer_backward",), _passing, "bitsandbytes",
     {**_ADAPTED, "base_weights": ("int8",), "peak": ("saved",)}),
)
