"""Data for the appendix's matrix: what every component keeps, and which parallel dimension divides it by how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sympy import Expr, Ge, Gt, Integer

from ..accounts.rows import is_expert, kept_rows
from ..accounts.units import is_layer_input
from ..choices import absent_values
from ..implementations import MEGATRON
from ..ledger import IN_LAYER, Component, Lifetime, Place, Role, Tensor
from ..parallel.dimensions import SHAPE_RULES
from ..parameters import symbol, symbols
from ..terms import Contribution, product
from .case import Case, grouped
from .dense import DENSE
from .tex import cell, code, escape, math

e, lq, fs, q, E, gq = symbols("e lq fs q E gq")
#: DeepSeek-V3 in Megatron-Core: latent attention, routed and shared experts.
EXPERTS = Case(
    MEGATRON.with_choices(heads="latent", layers="experts", scores="sigmoid", balance="bias"),
    {**DENSE.values, "sgate": 0, "cf": 0, "et": 1, "mtp": 0},
    (*DENSE.conditions, Gt(lq, 0), Gt(fs, 0), Gt(e, 1), Gt(q, 1), Gt(E, e), Gt(gq, 0), Ge(gq, 1)),
)
_KINDS = {Role.WEIGHT: "weight, states", Role.ACTIVATION: "saved"}
_PLACES = {Place.FIRST: "first", Place.LAST: "last", Place.STAGE: "every"}
#: Letters that fit into the column of sizes.
_COLUMN = 34


@dataclass(frozen=True)
class Divided:
    """Rows of a component that the same degrees divide: their size without parallelism, and the degrees."""

    case: Case
    component: Component
    role: Role
    whole: Expr
    degrees: tuple[str, ...]
    expert: bool

    @property
    def pipeline(self) -> str:
        """The pipeline's share: the letter that divides the layers, or the rank."""
        return "p" if self.component.place in IN_LAYER else _PLACES[self.component.place]

    @property
    def states(self) -> Expr:
        """The ranks that share the optimizer states of weights; 1 of what has none."""
        if self.role is not Role.WEIGHT:
            return Integer(1)
        return self.case.written_out(f"{'expert_' if self.expert else ''}optimizer_shards")


def divided() -> tuple[Divided, ...]:
    """Return all groups: of the dense case, then those that only experts and latent attention add."""
    dense = tuple(_of(DENSE))
    known = {item.component.name for item in dense}
    return (*dense, *(item for item in _of(EXPERTS) if item.component.name not in known))


def _of(case: Case) -> Iterator[Divided]:
    groups: dict[tuple[Component, Role, tuple[str, ...], bool], list[Expr]] = {}
    for row in kept_rows(case.implementation):
        if row.tensor.role in _KINDS and row.component.place in (*IN_LAYER, *_PLACES) and not _is_extra(row):
            local = case.decided(row.expression.xreplace(case.letters).doit())
            if local != 0:
                key = (row.component, row.tensor.role, _degrees(row.tensor), is_expert(row.tensor))
                groups.setdefault(key, []).append(case.decided(_whole(row.tensor, case)))
    for (component, role, degrees, expert), sizes in sorted(groups.items(), key=_place):
        yield Divided(case, component, role, grouped(sum(sizes, Integer(0))), degrees, expert)


def _place(group: tuple[tuple[Component, Role, tuple[str, ...], bool], list[Expr]]) -> tuple[int, int]:
    """Sort groups by component, weights before saved tensors."""
    (component, role, _, _), _ = group
    return component.order, list(_KINDS).index(role)


def _is_extra(row: Contribution) -> bool:
    """Return True for what lives only at a moment, and for what only recompute keeps."""
    return row.tensor.lifetime is Lifetime.SITE or is_layer_input(row.component)


def _degrees(tensor: Tensor) -> tuple[str, ...]:
    """Return the parallel dimensions that split some dimension of a tensor, by name."""
    absent = absent_values(MEGATRON.choices)
    return tuple(rule.name for rule in SHAPE_RULES
                 if rule.degree not in absent and any(item in rule.splits for item in tensor.shape))


def _whole(tensor: Tensor, case: Case) -> Expr:
    """Return the size of a row without parallelism."""
    each = Integer(1) if tensor.role is Role.WEIGHT else Integer(tensor.bytes)
    return product(each, *(item.size for item in tensor.shape)).xreplace(case.letters).doit()


def matrix() -> dict[str, Any]:
    """Prepare the rows of the matrix."""
    columns = [rule for rule in SHAPE_RULES if any(rule.name in item.degrees for item in divided())]
    letters = {rule.name: math(symbol("t") if rule.name == "sequence_parallel" else rule.degree) for rule in columns}
    return {
        "columns": [escape(rule.title.partition("(")[2].rstrip(")")) for rule in columns],
        "rows": [
            {"title": escape(item.component.title), "name": code(item.component.name), "kind": _KINDS[item.role],
             "size": cell(item.whole, _COLUMN),
             "cells": [letters[rule.name] if rule.name in item.degrees else "" for rule in columns],
             "pipeline": f"${item.pipeline}$" if len(item.pipeline) == 1 else item.pipeline,
             "states": math(item.states) if item.states != 1 else ""}
            for item in divided()
        ],
    }
