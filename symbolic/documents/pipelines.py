"""Data for the appendix's account of pipeline schedules and of stages."""

from __future__ import annotations

from typing import Any

from sympy import Expr, Integer, Symbol

from ..choices import BY_NAME
from ..implementations import Implementation
from ..parallel.derived import definitions
from ..parallel.schedules import SCHEDULES, Schedule
from ..parameters import symbol
from ..printers.latex import LatexPrinter
from .scope import Scope
from .tex import broken, cite, code, escape, math


def pipelines(scope: Scope) -> dict[str, Any]:
    """Prepare what rank r has in flight under every schedule, and its layers by every way to share them out."""
    return {
        "schedules": [_schedule(SCHEDULES[name]) for name in scope.options("schedule")],
        "stages": [_stages(option, scope.main) for option in scope.options("stages")],
    }


def _schedule(item: Schedule) -> dict[str, Any]:
    chunks = math(symbol("V") if item.chunks is None else Integer(item.chunks))
    notes = [f"{chunks} {'chunk' if item.chunks == 1 else 'chunks'} of layers per rank"]
    if item.last_rank == item.first_rank:
        notes.append("first and last stage on rank 0")
    formulas = [("", _equation(symbol("nr"), item.in_flight))]
    formulas += [(f"where {code(name)} is the program", _equation(symbol("Gr"), size))
                 for name, size in item.groups.items()]
    formulas += [
        (words, _equation(symbol(letter), value))
        for words, letter, value in (
            ("micro-batches whose first chunk is in flight on the first rank", "nf", item.in_flight_first),
            ("micro-batches of which the last rank keeps the input of the head", "nl", item.in_flight_last),
            ("micro-batches of which it keeps the loss", "ns", item.in_flight_loss),
        ) if value not in (1, item.in_flight)
    ]
    if len(item.peaks) > 1 or item.peaks[0][1] != 0:
        formulas += [(f"in flight, and waiting for gradients of weights, at peak {number}", _pair(held, waiting))
                     for number, (held, waiting) in enumerate(item.peaks, start=1)]
    return {
        "name": code(item.name), "title": escape(item.title), "source": cite(*item.sources), "notes": "; ".join(notes),
        "formulas": [{"words": f" ({words})" if words else "", "formula": text} for words, text in formulas],
    }


def _stages(option: str, main: Implementation) -> dict[str, str]:
    """Say how many layers rank r has: by formula, or by the list."""
    layers = definitions({**main.choices, "stages": option}, main.framework).get("Lr")
    return {
        "name": code(option), "meaning": escape(BY_NAME["stages"].options[option]),
        "formula": "" if layers is None else _equation(symbol("Lr"), layers),
    }


def _equation(left: Symbol, right: Expr) -> str:
    printer = LatexPrinter()
    return broken(f"{printer.doprint(left)} =", printer.pieces(right))


def _pair(held: Expr, waiting: Expr) -> str:
    printer = LatexPrinter()
    return broken("(", (*printer.pieces(held), r",\;", *printer.pieces(waiting), ")"))
