"""Data for the evaluators of one set of terms: plain Python for every term, Numba for a sweep's few."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sympy import Basic, Symbol

from ..functions import LeastCommonMultiple
from ..parallel.rules import Rule
from ..parameters import BY_LETTER, PARAMETERS, Kind
from ..printers.python import KernelPrinter, PythonPrinter, identifier
from ..simplify import computed
from ..terms import Term, TermSet
from ..verdict import VERDICTS

#: The terms that a sweep needs for every layout, and the one that the verdict is about.
SWEEP_OUTPUTS = ("first.total", "last.total", "peak")
ESTIMATE = "peak"


def evaluator(title: str, terms: TermSet, rules: Sequence[Rule]) -> dict[str, Any]:
    """Data of ``evaluator.py.jinja``: every term of the set and every rule."""
    every = list(terms.terms.values())
    needed = _needed_inputs(every, rules)
    return {
        "title": title,
        "inputs": [parameter.name for parameter in PARAMETERS if parameter.symbol in needed - terms.by_symbol.keys()],
        "terms": [_term(terms, term) for term in every],
        "rules": [_rule(rule) for rule in rules],
        "rule_lines": _assignments(terms, _rule_terms(terms, rules)),
    }


def kernel(title: str, terms: TermSet, rules: Sequence[Rule]) -> dict[str, Any]:
    """Data of ``kernel.py.jinja``: the rules and the terms that a sweep needs, for columns of layouts.

    Raises ValueError if a least common multiple is not with a power of two: the compiled one needs it.
    """
    for_rules = _rule_terms(terms, rules)
    closure = terms.closure(SWEEP_OUTPUTS)
    _check_multiples(term.expression for term in closure)
    needed = _needed_inputs(closure, rules) | {BY_LETTER["M"].symbol}
    inputs = [parameter for parameter in PARAMETERS if parameter.symbol in needed - terms.by_symbol.keys()]
    columns = [parameter.name for parameter in inputs if parameter.kind is Kind.LAYOUT]
    outputs = [identifier(terms[name].symbol) for name in SWEEP_OUTPUTS]
    return {
        "title": title,
        "scalars": [parameter.name for parameter in inputs if parameter.kind is not Kind.LAYOUT],
        "columns": columns,
        "column_arrays": [f"{name}_column" for name in columns],
        "rules": [_rule(rule) for rule in rules],
        "rule_lines": _assignments(terms, for_rules),
        "terms": [_term(terms, term) for term in closure if term not in for_rules],
        "outputs": outputs,
        "output_arrays": [f"{name}_out" for name in outputs],
        "estimate": identifier(terms[ESTIMATE].symbol),
        "verdicts": verdicts(),
    }


def verdicts() -> list[dict[str, str]]:
    """Name, meaning and the head of the branch of every verdict; the last one is for all that is left."""
    printer = PythonPrinter()
    heads = [f"elif {printer.doprint(item.condition)}" for item in VERDICTS]
    heads[0], heads[-1] = heads[0].removeprefix("el"), "else"
    return [
        {
            "name": item.name, "meaning": item.meaning, "branch": head,
            "compiled": KernelPrinter().doprint(item.condition),
        }
        for item, head in zip(VERDICTS, heads, strict=True)
    ]


@cache
def _term(terms: TermSet, term: Term) -> dict[str, str]:
    return {
        "name": term.name,
        "unit": term.unit,
        "meaning": term.meaning,
        "identifier": identifier(term.symbol),
        "source": PythonPrinter().doprint(computed(terms, term.name)),
    }


def _rule(rule: Rule) -> dict[str, str]:
    return {
        "name": rule.name,
        "field": BY_LETTER[rule.field].name,
        "text": rule.text,
        "source": PythonPrinter().doprint(rule.condition),
        "compiled": KernelPrinter().doprint(rule.condition),
    }


def _rule_terms(terms: TermSet, rules: Sequence[Rule]) -> list[Term]:
    """The terms that conditions refer to, in computing order."""
    by_symbol = terms.by_symbol
    symbols: set[Symbol] = set().union(*(rule.condition.free_symbols for rule in rules))
    return terms.closure(by_symbol[symbol].name for symbol in symbols if symbol in by_symbol)


def _assignments(terms: TermSet, chosen: Sequence[Term]) -> list[str]:
    return [f"{item['identifier']} = {item['source']}" for item in (_term(terms, term) for term in chosen)]


def _needed_inputs(terms: Iterable[Term], rules: Sequence[Rule]) -> set[Basic]:
    expressions = [*(term.expression for term in terms), *(rule.condition for rule in rules)]
    return set().union(*(expression.free_symbols for expression in expressions))


def _check_multiples(expressions: Iterable[Basic]) -> None:
    for expression in expressions:
        for node in expression.atoms(LeastCommonMultiple):
            other = node.args[1]
            if not (other.is_Integer and int(other).bit_count() == 1):
                raise ValueError(f"{node}: the second argument must be a power of two")
