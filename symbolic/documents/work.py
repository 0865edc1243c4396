"""Data for the appendix's section on step time: work and transfers of every component, groups, terms."""

from __future__ import annotations

from typing import Any

from ..efficiencies import EFFICIENCIES
from ..implementations import Implementation
from ..ledger import Component
from ..printers.latex import LatexPrinter
from ..timing import build_times
from ..work import Transfer
from .forms import aliases, time_forms
from .scope import Scope
from .tex import cite, code, escape, lines, math, operations, phrases
from .times import described, groups, weight_sides, when


def work(scope: Scope) -> dict[str, Any]:
    """Prepare the section: the rows of the scope, and the terms of its main implementation."""
    return {
        "timed": scope.timed,
        "time_title": escape(scope.main.title),
        "worked": [
            {"title": escape(item.title), "name": code(item.name), "rows": _rows(item, scope)}
            for item in scope.worked_components
        ],
        "times": [
            {"title": group.title, "rows": _terms(scope.main, group.terms)} for group in groups(scope.main)
        ] if scope.timed else [],
        "efficiencies": [
            {"name": code(name), "meaning": escape(item.meaning), "sources": cite(*item.sources),
             "date": item.date, "values": [item.values[name] for name in SHOWN_CONSTANTS]}
            for name, item in EFFICIENCIES.items()
        ],
    }


#: The columns of the table of constants.
SHOWN_CONSTANTS = ("matmul_per_mille", "attention_per_mille", "hbm_per_mille", "node_per_mille",
                   "network_per_mille", "kernel_ns", "attention_half_length")


def _rows(component: Component, scope: Scope) -> list[dict[str, str]]:
    rows = [
        {"name": code(item.name), "kind": "product", "size": escape(weight_sides(item)),
         "details": "a matrix of weights times tokens", "source": cite(item.source)}
        for item in scope.multiplied(component)
    ]
    for item in scope.work(component):
        kind, size = described(item)
        passes = ""
        if isinstance(item, Transfer):
            passes = f"passes forward {math(item.forward)}, backward {math(item.backward)}"
        rows.append({
            "name": code(item.name), "kind": kind, "size": escape(size), "source": cite(item.source),
            "details": phrases(
                escape(item.meaning), passes, f"module {code(item.module)}",
                f"only if {escape(' and '.join(when(item)))}" if item.options else "",
                f"only for {math(item.when)}" if item.when != 1 else "",
            ),
        })
    return rows


def _terms(main: Implementation, names: tuple[str, ...]) -> list[dict[str, str]]:
    same, forms = aliases(main), time_forms(main)
    printer = LatexPrinter(build_times(main).terms.values(), same=same)
    return [
        {"name": code(name), "lines": lines(printer, forms[name]), "operations": operations(forms[name]),
         "meaning": rf"{{\scriptsize {escape(forms[name].term.meaning)} ({forms[name].term.unit})}}"}
        for name in names if forms[name].term.symbol not in same
    ]
