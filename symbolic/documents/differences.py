"""Data for the appendix's table of frameworks: what each adds to Megatron-Core, component by component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Expr, Gt, Integer

from ..accounts.rows import components_of
from ..implementations import IMPLEMENTATIONS, MEGATRON, Implementation
from ..ledger import Role
from ..parallel.data import bytes_per_element, states
from ..parameters import BY_LETTER, symbol
from .case import Case, grouped
from .tex import cell, code, escape

#: One rank of tensor and context parallelism, which every framework has.
VALUES: Mapping[str, int] = {"sp": 0, "t": 1, "c": 1, "p": 1, "R": 1, "b": 1}
_OTHERS = tuple(item for item in IMPLEMENTATIONS.values() if item is not MEGATRON)
_ROLES = (Role.WEIGHT, Role.GRADIENT, Role.OPTIMIZER)
#: Letters that fit into all columns of differences together.
_COLUMNS = 66


def case_of(implementation: Implementation) -> Case:
    """Return the case in which an implementation is compared."""
    return Case(implementation, VALUES, (Gt(symbol("m"), 1),))


def saved(implementation: Implementation) -> dict[str, Expr]:
    """Return the bytes that each component saves in one layer or micro-batch, by name, without zeros."""
    case = case_of(implementation)
    return {
        item.name: size for item in components_of(implementation)
        if f"{item.name}.saved" in case.terms and (size := case.written_out(f"{item.name}.saved")) != 0
    }


def of_a_parameter(implementation: Implementation, role: Role) -> Expr:
    """Return bytes for each parameter by role, before any is shared out."""
    return bytes_per_element(states(implementation.choices), role)


def differences() -> dict[str, Any]:
    """Prepare the rows: a component, what Megatron-Core saves, and what the others save more or less."""
    base = saved(MEGATRON)
    others = {item.name: saved(item) for item in _OTHERS}
    names = dict.fromkeys((*base, *(name for sizes in others.values() for name in sizes)))
    titles = {item.name: item.title for framework in IMPLEMENTATIONS.values() for item in components_of(framework)}
    rows = [
        _row(escape(titles[name]), base.get(name, Integer(0)),
             [sizes.get(name, Integer(0)) for sizes in others.values()])
        for name in names
    ]
    kept = [
        _row(f"each parameter: {role.value}", of_a_parameter(MEGATRON, role),
             [of_a_parameter(item, role) for item in _OTHERS])
        for role in _ROLES
    ]
    return {
        "columns": [code(item.name) for item in _OTHERS], "base": code(MEGATRON.name),
        "titles": [{"name": code(item.name), "title": escape(item.title), "version": escape(item.version)}
                   for item in IMPLEMENTATIONS.values()],
        "values": ", ".join(f"{BY_LETTER[letter].name} {value}" for letter, value in VALUES.items()).replace("_", " "),
        "rows": [row for row in (*kept, *rows) if any(part != "--" for part in row["cells"])],
    }


def _row(title: str, base: Expr, others: list[Expr]) -> dict[str, Any]:
    room = _COLUMNS / (len(others) + 1)
    changes = [grouped((size - base).expand()) for size in others]
    return {"title": title, "base": cell(base, room),
            "cells": ["--" if change == 0 else cell(change, room) for change in changes]}
