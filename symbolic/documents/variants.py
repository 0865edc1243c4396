"""Data for the appendix's section on routed experts and latent attention: their terms, and DeepSeek-V3 in numbers."""

from __future__ import annotations

from typing import Any

from sympy import Expr, Rational

from ..exact import evaluate
from ..printers.latex import LatexPrinter
from . import dense
from .case import OFF
from .legend import legend, letters_in
from .matrix import EXPERTS
from .tex import broken, code, digits, escape, gib
from .worked import Layout

#: Terms of a layer with latent attention and experts, and the tokens that its experts receive.
NAMES = (
    "latent_attention.parameters", "latent_attention.saved", "router.saved", "dispatch.saved", "expert_tokens",
    "experts.expert_parameters", "experts.saved", "shared_experts.parameters", "shared_experts.saved",
    "expert_layer.parameters", "expert_layer.saved",
)
_SUMS = ("expert_layer.parameters", "expert_layer.saved")
LAYOUT = Layout(
    "DeepSeek-V3", "deepseek-v3", "h100-80gb",
    {"t": 2, "c": 1, "p": 16, "D": 64, "e": 64, "et": 1, "b": 1, "s": 4096, "B": 4096, "sp": 1, "mtp": 0},
)


def forms() -> dict[str, Expr]:
    """Return the terms over the letters; sums of a layer over the terms that they add up."""
    parts = {name for name in EXPERTS.terms.terms if name.endswith((".parameters", ".saved"))}
    return {
        name: EXPERTS.written_out(name, (parts if name in _SUMS else {"expert_tokens"}) - {name})
        for name in NAMES if name in EXPERTS.terms
    }


def numbers() -> dict[str, Rational]:
    """Return the exact values of the terms at the layout."""
    values = {**LAYOUT.values(), **dict.fromkeys(OFF, 0)}
    return evaluate(EXPERTS.terms.closure(forms()), values)


def letters() -> set[str]:
    """Return the letters of the terms that the section on a dense model has not."""
    return letters_in(forms().values()) - dense.letters()


def variants() -> dict[str, Any]:
    """Prepare a row for every term."""
    printer, values, layout = LatexPrinter(EXPERTS.terms.terms.values()), numbers(), LAYOUT.values()
    return {
        "title": escape(LAYOUT.title), "layout": ", ".join(f"${letter} = {layout[letter]}$" for letter in "tcebs"),
        "letters": legend(letters()),
        "rows": [
            {"name": code(name), "words": escape(EXPERTS.terms[name].meaning),
             "form": broken(f"{printer.doprint(EXPERTS.terms[name].symbol)} =", printer.pieces(form)),
             "value": digits(values[name]), "gib": gib(values[name]) if EXPERTS.terms[name].unit == "bytes" else ""}
            for name, form in forms().items()
        ],
    }
