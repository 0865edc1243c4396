"""Data for the appendix's section on step time: work and transfers of every component, groups, terms."""

from __future__ import annotations

from typing import Any

from ..efficiencies import EFFICIENCIES
from ..implementations import MEGATRON
from ..ledger import Component
from ..printers.latex import LatexPrinter
from ..timing import build_times
from ..work import Transfer
from .forms import time_forms
from .tex import cite, code, escape, lines, math, operations, phrases
from .times import described, groups, weights, when, worked_components


def work() -> dict[str, Any]:
    """Prepare the section."""
    return {
        "worked": [
            {"title": escape(item.title), "name": code(item.name), "rows": _rows(item)} for item in worked_components()
        ],
        "times": [{"title": group.title, "rows": _terms(group.terms)} for group in groups()],
        "efficiencies": [
            {"name": code(name), "meaning": escape(item.meaning), "sources": cite(*item.sources),
             "matmul": item.matmul_per_mille, "attention": item.attention_per_mille}
            for name, item in EFFICIENCIES.items()
        ],
    }


def _rows(component: Component) -> list[dict[str, str]]:
    rows = [
        {"name": code(name), "kind": "product", "size": escape(sides), "details": "a matrix of weights times tokens",
         "source": cite(source)}
        for name, sides, source in weights(component)
    ]
    for item in component.work:
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


def _terms(names: tuple[str, ...]) -> list[dict[str, str]]:
    printer, forms = LatexPrinter(build_times(MEGATRON).terms.values()), time_forms(MEGATRON)
    return [
        {"name": code(name), "lines": lines(printer, forms[name]), "operations": operations(forms[name]),
         "meaning": rf"{{\scriptsize {escape(forms[name].term.meaning)} ({forms[name].term.unit})}}"}
        for name in names
    ]
