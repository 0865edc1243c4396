"""Data for the supplement's section on phases: formulas of time, and what ranks receive when a layout changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sympy import Rational, Symbol

from ..accounts import build
from ..exact import evaluate
from ..implementations import MEGATRON
from ..parallel.resharding import Mesh, Received, Tensors, received
from ..printers.latex import LatexPrinter
from ..timing.phases import FORMULAS, QUANTITIES
from .tex import code, digits, escape
from .worked import Layout

#: Layouts of one model on equal GPUs: two stages; then context parallelism in place of stages, and of data parallelism.
_BEFORE = {"t": 2, "c": 1, "p": 2, "D": 16}
_AFTER = ({"t": 4, "c": 8, "p": 1, "D": 2}, {"t": 2, "c": 4, "p": 2, "D": 4}, {"t": 2, "c": 1, "p": 4, "D": 8})
_DEGREES = (("t", "TP"), ("c", "CP"), ("p", "PP"), ("D", "DP"))


class _Printer(LatexPrinter):
    """Prints quantities of phases by their names."""

    times = r" \cdot "

    def _print_Symbol(self, expr: Symbol, style: str = "plain") -> str:
        if expr in QUANTITIES:
            return rf"\text{{{expr.name.replace('_', ' ')}}}"
        return str(super()._print_Symbol(expr, style))


def changes() -> dict[str, Any]:
    """Prepare the section: the formulas of phases, and changes of layout of one model."""
    layout = Layout("Llama-3.1-8B", "llama-3.1-8b", "h100-80gb", {"b": 1, "s": 8192, "B": 128, "sp": 1, **_BEFORE})
    printer = _Printer()
    before, tensors = _mesh(layout, _BEFORE), _tensors(layout)
    return {
        "phase_formulas": [
            {"name": code(name), "formula": f"${printer.doprint(formula)}$", "unit": unit, "meaning": escape(meaning)}
            for name, (formula, unit, meaning) in FORMULAS.items()
        ],
        "changes_title": escape(layout.title),
        "changes_before": _said(_BEFORE),
        "changes": [_change(after, list(received(tensors, before, _mesh(layout, after)))) for after in _AFTER],
    }


def _change(after: dict[str, int], each: list[Received]) -> dict[str, str]:
    numbers = {
        "weights": sum(rank.weights for rank in each), "states": sum(rank.states for rank in each),
        "most": max(rank.weights + rank.states for rank in each),
    }
    return {"after": _said(after), **{name: digits(Rational(number)) for name, number in numbers.items()}}


def _said(degrees: dict[str, int]) -> str:
    return ", ".join(f"{word}~{degrees[letter]}" for letter, word in _DEGREES)


def _tensors(layout: Layout) -> Tensors:
    values, terms = layout.values(), build(MEGATRON).closure(("layer.parameters",))
    alone, halved = (int(evaluate(terms, {**values, "t": ranks})["layer.parameters"]) for ranks in (1, 2))
    return Tensors.of_layers(values["u"], values["h"], values["L"], alone, halved, tied=bool(values["tied"]))


def _mesh(layout: Layout, degrees: dict[str, int]) -> Mesh:
    values = replace(layout, choices={**layout.choices, **degrees}).values()
    rows = evaluate(build(MEGATRON).closure(("embedding.parameters",)), values)["embedding.parameters"] / values["h"]
    stages = degrees["p"]
    layers = (values["L"] // stages,) * stages
    return Mesh(degrees["t"], degrees["c"], degrees["D"], stages, layers, int(rows), shared=True)
