"""Data for the appendix's display of step time: few terms, each over the letters and the others."""

from __future__ import annotations

from functools import cache
from typing import Any

from sympy import Expr, Gt

from ..parameters import symbols
from ..printers.latex import LatexPrinter
from ..terms import term_symbol
from . import dense
from .case import Case
from .dense import DENSE
from .legend import legend, letters_in
from .tex import broken, code, escape

p, r, c = symbols("p r c")
#: A stage between the first and the last one; no collective is hidden behind computing.
TIMED = Case(
    DENSE.implementation, {**DENSE.values, "ot": 0, "og": 0, "ow": 0, "st": 0},
    (*DENSE.conditions, Gt(r, 0), Gt(p - 1, r), Gt(c, 1), Gt(term_symbol("pipeline.borders"), 0)), timed=True,
)
#: The terms of the display, and those that stay symbols in it.
NAMES = (
    "step.time", "step.bubble", "step.pipeline_waiting", "stage.microbatch_time", "layer.forward_computing",
    "layer.backward_computing", "attention.product_time", "swiglu.product_time", "attention.core_time",
    "attention.core_backward_time", "layer.tensor_forward_waiting", "layer.tensor_backward_waiting",
    "layer.context_forward_waiting", "stage.reducing", "stage.gathering", "stage.optimizer_time",
)
KEPT = (
    *NAMES, "step.slowest_stage", "step.data_waiting", "step.optimizer", "whole.microbatch_time", "step.sent_bytes",
    "layer.context_backward_waiting", "layer.forward_launching", "layer.backward_launching", "layer.kernels",
    "stage.accumulating", "stage.gradient", "stage.optimizer", "stage.weight", "stage.buffer_elements",
    "stage.reducing_calls", "stage.gathering_calls", "pipeline.borders",
    *(f"{group}.{kind}" for group in ("tensor", "context", "pipeline", "data") for kind in ("bandwidth", "latency")),
    "context.send_bandwidth", "pipeline.send_bandwidth",
)


@cache
def shown() -> dict[str, Expr]:
    """Return the terms of the display over the letters and the terms that stay symbols."""
    return {name: TIMED.written_out(name, [part for part in KEPT if part != name]) for name in NAMES}


def letters() -> set[str]:
    """Return the letters of the display that the section on a dense model has not."""
    return letters_in(shown().values()) - dense.letters()


def display() -> dict[str, Any]:
    """Prepare the terms of the display, and the words for symbols that stay in it."""
    printer = LatexPrinter(TIMED.terms.terms.values())
    forms = shown()
    used = {part for form in forms.values() for part in form.free_symbols}
    return {
        "rows": [
            {"name": code(name), "words": escape(TIMED.terms[name].meaning),
             "form": broken(f"{printer.doprint(TIMED.terms[name].symbol)} =", printer.pieces(form))}
            for name, form in forms.items()
        ],
        "letters": legend(letters()),
        "symbols": [
            {"symbol": printer.doprint(TIMED.terms[name].symbol), "words": escape(TIMED.terms[name].meaning)}
            for name in KEPT if name not in NAMES and TIMED.terms[name].symbol in used
        ],
    }
