"""Data for the evaluators of one set of terms: Python and JavaScript for every term, Numba for a sweep's few."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sympy import Basic, Symbol

from ..functions import LeastCommonMultiple
from ..parallel.rules import Rule
from ..parameters import BY_LETTER, PARAMETERS, Kind
from ..printers.javascript import JavascriptPrinter
from ..printers.python import KernelPrinter, PythonPrinter, identifier
from ..simplify import computed
from ..terms import Term, TermSet
from ..verdict import VERDICTS

#: The terms that a sweep needs for every layout, and the one that the verdict is about.
SWEEP_OUTPUTS = ("first.total", "last.total", "peak")
ESTIMATE = "peak"


def evaluator(
    title: str, terms: TermSet, rules: Sequence[Rule], printer: PythonPrinter | None = None,
) -> dict[str, Any]:
    """Data of ``evaluator.py.jinja``: every term of the set and every rule."""
    every = list(terms.terms.values())
    needed = _needed_inputs(every, rules)
    return {
        "title": title,
        "inputs": [parameter.name for parameter in PARAMETERS if parameter.symbol in needed - terms.by_symbol.keys()],
        "terms": [_term(terms, term, printer) for term in every],
        "rules": [_rule(rule, printer) for rule in rules],
        "rule_terms": [_term(terms, term, printer) for term in _rule_terms(terms, rules)],
    }


def script(name: str, title: str, terms: TermSet, rules: Sequence[Rule]) -> dict[str, Any]:
    """Data of ``evaluator.js.jinja``: what Python's evaluator has, and the verdicts, as ``shardmath.<name>``."""
    return {**evaluator(title, terms, rules, JavascriptPrinter()), "name": name, "verdicts": verdicts()}


def kernel(
    title: str, terms: TermSet, rules: Sequence[Rule], outputs: Sequence[str] = SWEEP_OUTPUTS,
    columns: Collection[str] | None = None,
) -> dict[str, Any]:
    """Data of ``kernel.py.jinja``: the rules, the verdict and the terms ``outputs`` for columns of layouts.

    ``columns`` names the parameters that differ from row to row, by default all that describe a layout; the others
    are the same for all rows. Raises ValueError if a least common multiple is not with a power of two: the compiled
    one needs it.
    """
    for_rules = _rule_terms(terms, rules)
    closure = terms.closure((*outputs, ESTIMATE))
    _check_multiples(term.expression for term in closure)
    needed = _needed_inputs(closure, rules) | {BY_LETTER["M"].symbol}
    inputs = [parameter for parameter in PARAMETERS if parameter.symbol in needed - terms.by_symbol.keys()]
    if columns is None:
        columns = {parameter.name for parameter in inputs if parameter.kind is Kind.LAYOUT}
    varying = _varying(closure, for_rules, {item.symbol for item in inputs if item.name in columns})
    printer = KernelPrinter(varying)
    return {
        "title": title,
        "scalars": [parameter.name for parameter in inputs if parameter.name not in columns],
        "columns": [parameter.name for parameter in inputs if parameter.name in columns],
        "rules": [_rule(rule, printer) for rule in rules],
        "rule_terms": [_term(terms, term, printer) for term in for_rules],
        "terms": [_term(terms, term, printer) for term in closure if term not in for_rules],
        "outputs": [{"name": name, "identifier": identifier(terms[name].symbol)} for name in outputs],
        "estimate": identifier(terms[ESTIMATE].symbol),
        "verdicts": verdicts(),
    }


def _varying(closure: Sequence[Term], for_rules: Sequence[Term], columns: Collection[Symbol]) -> set[Symbol]:
    """The columns, and the terms that differ from row to row because these do."""
    found = set(columns)
    for term in (*for_rules, *closure):
        if term.expression.free_symbols & found:
            found.add(term.symbol)
    return found


def verdicts() -> list[dict[str, str]]:
    """Name, meaning and the head of the branch of every verdict; the last one is for all that is left."""
    printer = PythonPrinter()
    heads = [f"elif {printer.doprint(item.condition)}" for item in VERDICTS]
    heads[0], heads[-1] = heads[0].removeprefix("el"), "else"
    return [
        {
            "name": item.name, "meaning": item.meaning, "branch": head,
            "compiled": KernelPrinter().doprint(item.condition),
            "script": JavascriptPrinter().doprint(item.condition),
        }
        for item, head in zip(VERDICTS, heads, strict=True)
    ]


def _term(terms: TermSet, term: Term, printer: PythonPrinter | None = None) -> dict[str, str]:
    return {
        "name": term.name,
        "unit": term.unit,
        "meaning": term.meaning,
        "identifier": identifier(term.symbol),
        "source": (printer or PythonPrinter()).doprint(computed(terms, term.name)),
    }


def _rule(rule: Rule, printer: PythonPrinter | None = None) -> dict[str, str]:
    return {
        "name": rule.name,
        "field": BY_LETTER[rule.field].name,
        "text": rule.text,
        "source": (printer or PythonPrinter()).doprint(rule.condition),
    }


def _rule_terms(terms: TermSet, rules: Sequence[Rule]) -> list[Term]:
    """The terms that conditions refer to, in computing order."""
    by_symbol = terms.by_symbol
    symbols: set[Symbol] = set().union(*(rule.condition.free_symbols for rule in rules))
    return terms.closure(by_symbol[symbol].name for symbol in symbols if symbol in by_symbol)



def _needed_inputs(terms: Iterable[Term], rules: Sequence[Rule]) -> set[Basic]:
    expressions = [*(term.expression for term in terms), *(rule.condition for rule in rules)]
    return set().union(*(expression.free_symbols for expression in expressions))


def _check_multiples(expressions: Iterable[Basic]) -> None:
    for expression in expressions:
        for node in expression.atoms(LeastCommonMultiple):
            other = node.args[1]
            if not (other.is_Integer and int(other).bit_count() == 1):
                raise ValueError(f"{node}: the second argument must be a power of two")
