"""Data for the appendix's sections on components: every tensor of every variant, its sizes, its terms."""

from __future__ import annotations

from typing import Any

from ..accounts import build
from ..dimension import Dimension
from ..implementations import Implementation
from ..ledger import SITES, Component, Role, Tensor
from ..printers.latex import LatexPrinter
from ..terms import operations as operations_of
from .forms import Form, aliases, forms, own_terms, row_sizes
from .scope import Scope
from .tex import cell, cite, code, escape, lines, math, operations, or_dash, phrases

#: Letters that fit in all columns of sizes together.
_SIZES = 52
#: Sizes of a dimension with more operations stand in the table of dimensions alone.
LONGEST = 12


def components(scope: Scope) -> dict[str, Any]:
    """Prepare one section for every component."""
    return {"components": [_component(item, scope) for item in scope.components], "sites": _sites(scope)}


def shape(tensor: Tensor) -> str:
    """Set a shape in letters, one for each dimension; a dimension of a long size has its name."""
    sizes = [_size(dimension) for dimension in tensor.shape]
    if len(sizes) > 1:
        sizes = [f"({size})" if "+" in size else size for size in sizes]
    product = r" \times ".join(sizes)
    return f"${product}$" if sizes else "scalar"


def _size(dimension: Dimension) -> str:
    if operations_of(dimension.size) > LONGEST:
        return rf"\mbox{{{code(dimension.name)}}}"
    return LatexPrinter().doprint(dimension.size)


def details(tensor: Tensor) -> str:
    """Say what a row is, its named dimensions, and when it exists."""
    options = [
        f"{code(axis)} is {' or '.join(map(code, allowed))}" for axis, allowed in tensor.options.items()
    ]
    return phrases(
        escape(tensor.meaning),
        " $\\times$ ".join(code(dimension.name) for dimension in tensor.shape),
        f"module {code(tensor.module)}",
        f"only if {' and '.join(options)}" if options else "",
        f"only for {math(tensor.when)}" if tensor.when != 1 else "",
        f"input of the recomputed region {code(tensor.checkpoint)}" if tensor.checkpoint else "",
        f"shares {code(tensor.storage)}" if tensor.storage else "",
    )


def _component(item: Component, scope: Scope) -> dict[str, Any]:
    return {
        "title": escape(item.title), "name": code(item.name), "label": item.name, "place": item.place.value,
        "note": escape(item.note), "rows": [_row(tensor) for tensor in scope.tensors(item)],
        "sizes": _sizes(item, scope),
        "columns": [code(implementation.framework) for implementation in scope.implementations],
        "terms": [
            {"implementation": code(implementation.framework), "rows": rows}
            for implementation in scope.implementations
            if (rows := term_rows(implementation, own_terms(build(implementation), item)))
        ],
    }


def _row(tensor: Tensor) -> dict[str, str]:
    sites = ", ".join(code(site) for site in tensor.sites)
    return {
        "name": code(tensor.name), "role": tensor.role.value, "shape": shape(tensor),
        "bytes": or_dash("" if tensor.role is Role.WEIGHT else str(tensor.bytes)),
        "lifetime": sites or tensor.lifetime.value, "source": cite(tensor.source), "details": details(tensor),
    }


def _sizes(item: Component, scope: Scope) -> list[dict[str, Any]]:
    """Compare the rows that at least one implementation keeps."""
    sizes = [row_sizes(implementation) for implementation in scope.implementations]
    room = _SIZES / len(sizes)
    rows = []
    for tensor in scope.tensors(item):
        kept_sizes = [of_one.get((item.name, tensor.name)) for of_one in sizes]
        if any(size is not None for size in kept_sizes):
            cells = [or_dash("" if size is None else cell(size, room)) for size in kept_sizes]
            rows.append({"name": code(tensor.name), "cells": cells})
    return rows


def term_rows(
    implementation: Implementation, names: tuple[str, ...], meanings: bool = True,
) -> list[dict[str, str]]:
    """Prepare terms of an implementation as rows: name, both forms, operations, meaning with unit.

    A term that is only another name has no row: what it stands for is printed in its place.
    """
    same = aliases(implementation)
    printer = LatexPrinter(build(implementation).terms.values(), same=same)
    of_all = forms(implementation)
    return [
        {"name": code(name), "lines": lines(printer, of_all[name]), "operations": operations(of_all[name]),
         "meaning": _meaning(of_all[name]) if meanings else ""}
        for name in names if of_all[name].term.symbol not in same
    ]


def _meaning(form: Form) -> str:
    return rf"{{\scriptsize {escape(form.term.meaning)} ({form.term.unit})}}"


def _sites(scope: Scope) -> list[dict[str, str]]:
    return [
        {"name": code(name), "meaning": escape(site.meaning)} for name, site in SITES.items() if name in scope.sites
    ]

