"""Data for the first page of the appendix: the memory of a dense model as one formula, and what it leaves out."""

from __future__ import annotations

from functools import cache
from typing import Any

from sympy import Eq, Expr, Ge, Gt, Integer, Rational, Symbol, collect

from ..accounts import build
from ..exact import evaluate
from ..implementations import MEGATRON
from ..ledger import SITES
from ..parameters import BY_LETTER, symbol, symbols
from ..printers.latex import LatexPrinter
from ..terms import operations
from .case import OFF, Case
from .legend import legend, letters_in
from .tex import broken, code, digits, escape, fixed_point, gib, math
from .worked import STAGED, Layout

p, t, k, m, b, w, c, D = symbols("p t k m b w c D")

#: Sequence parallelism, the distributed optimizer, one replica of it, all switches of models and recompute off.
DENSE = Case(MEGATRON, {"sp": 1, "zero1": 1, "R": 1}, (Gt(p, 1), Gt(t, 1), Ge(k, t), Gt(m, p), Gt(w, 2)))
#: Terms of the first rank that the formula names, and those that it replaces as it leaves out all padding.
PARAMETERS, LAYER = "first.parameters", "layer.saved"
_BUFFER, _SHARD = "first.buffer_elements", "first.shard_elements"
_STATES = ("first.weight", "first.gradient", "first.optimizer")
_MOMENTS = tuple(f"first.{name}" for name in SITES)


def formula() -> dict[str, Expr]:
    """Return the formula of all bytes of the first rank, of its parameters and of a layer, by the name of the term."""
    states, unpadded = _states()
    parameters = DENSE.terms[PARAMETERS].symbol
    kept = sum((DENSE.written_out(f"first.{name}", (LAYER,)) for name in ("inner_activations", "input")), Integer(0))
    return {
        "first.total": collect(states.xreplace(unpadded).expand(), parameters) + kept,
        PARAMETERS: DENSE.written_out(PARAMETERS), LAYER: DENSE.written_out(LAYER),
    }


@cache
def left_out() -> dict[str, tuple[str, Expr]]:
    """Return the parts that the formula leaves out, by name, in words and as a form; with them it is the total."""
    states, unpadded = _states()
    padding = sum((states.expand().coeff(padded) * (padded - plain) for padded, plain in unpadded.items()), Integer(0))
    return {
        "padding": ("padding of the buffers of parameters", padding),
        "buffers": ("tables, dummy gradients and workspaces", DENSE.written_out("first.buffer")),
        "moment": (SITES[moment()].meaning, DENSE.written_out(f"first.{moment()}")),
    }


def _states() -> tuple[Expr, dict[Symbol, Expr]]:
    """Return bytes of all states over what is padded, and what stands for that without its padding."""
    parameters, shards = DENSE.terms[PARAMETERS].symbol, DENSE.written_out("optimizer_shards")
    unpadded = {DENSE.terms[_BUFFER].symbol: parameters, DENSE.terms[_SHARD].symbol: parameters / shards}
    return sum((DENSE.written_out(name, (_BUFFER, _SHARD)) for name in _STATES), Integer(0)), unpadded


@cache
def moment() -> str:
    """Return the moment at which the first rank peaks; ValueError if the layouts do not agree about it."""
    largest = set()
    for layout in STAGED:
        values = _values(layout)
        sizes = {name: values[f"first.{name}.all"] for name in SITES if f"first.{name}.all" in values}
        largest.add(max(sizes, key=lambda name: sizes[name]))
    (only,) = largest
    return only


@cache
def _values(layout: Layout) -> dict[str, Rational]:
    return evaluate(build(MEGATRON).terms.values(), layout.values())


def at(layout: Layout, expression: Expr) -> Rational:
    """Return the value of an expression over letters and terms at a layout."""
    terms, letters = DENSE.terms, layout.values()
    values = _values(layout)
    known = {
        part: values[terms.by_symbol[part].name] if part in terms.by_symbol else Integer(letters[str(part)])
        for part in expression.free_symbols
    }
    return Rational(expression.xreplace(known))


def dense() -> dict[str, Any]:
    """Prepare the formula, what is assumed, what is left out, and the error at named layouts."""
    printer = LatexPrinter(DENSE.terms.terms.values())
    forms = formula()
    return {
        "formula": [
            {"symbol": printer.doprint(DENSE.terms[name].symbol), "form": " ".join(printer.pieces(form))}
            for name, form in forms.items()
        ],
        "letters": legend(letters()),
        "operations": sum(operations(form) for form in forms.values()),
        "of_ledger": sum(operations(term.expression) for term in DENSE.terms.closure(["first.total"])),
        "assumed": [math(condition) for condition in DENSE.conditions],
        "chosen": [math(Eq(symbol(letter), value, evaluate=False)) for letter, value in DENSE.values.items()],
        "off": ", ".join(code(BY_LETTER[letter].name) for letter in OFF),
        "moment": code(moment()),
        "left_out": [
            {"name": name, "words": escape(words), "form": broken("", printer.pieces(form, _COLUMN)),
             "sizes": [gib(at(layout, form)) for layout in STAGED]}
            for name, (words, form) in left_out().items()
        ],
        "layouts": [_row(layout) for layout in STAGED],
    }


#: Letters that fit beside what is left out.
_COLUMN = 40


def _row(layout: Layout) -> dict[str, str]:
    total, short = _values(layout)["first.total"], at(layout, _in_letters(formula()["first.total"]))
    values = layout.values()
    return {
        "title": escape(layout.title), "values": ", ".join(f"${letter} = {values[letter]}$" for letter in "tcpDbsB"),
        "total": digits(total), "gib": gib(total), "short": gib(short),
        "error": fixed_point(100 * (total - short) / total, 2), "peak": gib(_values(layout)["peak"]),
    }


def letters() -> set[str]:
    """Return the letters of the formula and of what it assumes."""
    return letters_in((*formula().values(), *DENSE.conditions))


def _in_letters(expression: Expr) -> Expr:
    """Return the formula with those of parameters and of a layer put in."""
    forms = formula()
    put_in: dict[Symbol, Expr] = {DENSE.terms[name].symbol: forms[name] for name in (PARAMETERS, LAYER)}
    return expression.xreplace(put_in)
