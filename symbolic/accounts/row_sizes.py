"""Sizes of single tensors on rank r, for a replay of a step's allocations."""

from __future__ import annotations

from functools import cache

from sympy import Integer

from ..choices import absent_values
from ..implementations import Implementation
from ..ledger import Role
from ..orders.step import kept_gradients, parameters, passing
from ..orders.words import WHOLE
from ..parallel.data import states
from ..terms import TermSet, product
from . import megatron_units
from .aggregates import aggregates_of
from .build import build
from .layers.scripts import of_tapes
from .rows import kept_rows, local_shape

#: Roles of states that the elements of parameters have.
STATES = (Role.WEIGHT, Role.GRADIENT, Role.OPTIMIZER, Role.BUFFER)


@cache
def row_sizes(implementation: Implementation) -> TermSet:
    """Return a term for each tensor that is allocated by itself: bytes, of weights elements.

    Rows are those of one instance of their component; tensors that only pass stand beside them. States are in bytes of
    one element.
    """
    base, choices = build(implementation), implementation.choices
    terms = TermSet(f"{implementation.name}_rows", as_inputs=base.as_inputs, base=base)
    for row in kept_rows(implementation):
        unit = "elements" if row.tensor.role is Role.WEIGHT else "bytes"
        name = f"{row.component.name}.{row.tensor.name}"
        terms.add(name, row.expression, unit, row.tensor.meaning, (row,))
        if row.tensor.role is Role.WEIGHT and (apart := parameters(row.tensor.shape, choices)):
            terms.add(f"pieces.{name}", product(*local_shape(apart, choices)), "tensors",
                      f"{row.tensor.meaning}: how many parameters")
    for item in passing(choices):
        size = product(Integer(item.bytes), *local_shape(item.shape, choices), item.when)
        terms.add(f"passing.{item.name}", size.xreplace(absent_values(choices)), "bytes", item.meaning)
    if taped := of_tapes(implementation):
        terms.add("tape.residual", product(Integer(2), *local_shape(WHOLE, choices)), "bytes", "residual stream")
        for place, size in enumerate(taped.sizes):
            terms.add(f"tape.{place}", size.xreplace(absent_values(choices)), "bytes", "tensor of a walked layer")
        for place, switch in enumerate(taped.switches):
            terms.add(f"switch.{place}", switch.xreplace(absent_values(choices)), "1",
                      "1 or 0: what a walked layer has")
    for aggregate in aggregates_of(implementation):
        if aggregate.pieces != 1:
            terms.add(f"pieces.{aggregate.name}", aggregate.pieces, "tensors", f"{aggregate.title}: how many")
    if choices["data_parallel"] == "megatron_fsdp":
        for name, (size, meaning) in megatron_units.sizes(base, implementation).items():
            terms.add(f"units.{name}", size, "elements", meaning)
    for state in states(choices):
        if state.role in STATES and state.count is None:
            terms.add(f"state.{state.name}", state.bytes, "bytes", state.meaning)
    terms.add("state.kept_gradient", 2 * kept_gradients(choices), "bytes",
              "16-bit gradient, kept until the micro-batch is done")
    return terms
