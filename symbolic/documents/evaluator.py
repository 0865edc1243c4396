"""Data for the plain evaluators of one set of terms: every term and every rule, exact on fractions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sympy import Basic, Symbol

from ..parallel.rules import Rule
from ..parameters import BY_LETTER, PARAMETERS
from ..printers.python import PythonPrinter, identifier
from ..simplify import computed
from ..terms import Term, TermSet
from ..verdict import VERDICTS


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


def verdicts() -> list[dict[str, str]]:
    """Name, meaning and the head of the branch of every verdict; the last one is for all that is left."""
    printer = PythonPrinter()
    heads = [f"elif {printer.doprint(item.condition)}" for item in VERDICTS]
    heads[0], heads[-1] = heads[0].removeprefix("el"), "else"
    return [
        {"name": item.name, "meaning": item.meaning, "branch": head}
        for item, head in zip(VERDICTS, heads, strict=True)
    ]


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
