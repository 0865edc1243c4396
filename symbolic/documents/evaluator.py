"""Data for the evaluators of one set of terms, in Python and JavaScript: every term and every rule, exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from sympy import Basic, Expr, Symbol

from ..parallel.rules import Rule
from ..parameters import BY_LETTER
from ..printers.javascript import JavascriptPrinter, RealJavascriptPrinter
from ..printers.python import EvaluatorPrinter, PythonPrinter, RealPrinter, identifier
from ..run_out import MARGIN, MOST_RISK, PARTS, PROBABILITY, margin, process_limit, run_out_probability
from ..simplify import computed
from ..terms import Term, TermSet
from ..verdict import ALLOCATED, CERTAIN, LIMITS, PROCESS, RANK_LIMITS, RULE_80, VERDICTS, M, Verdict, rule_share

#: The form of a term by its name in a set of terms.
Form = Callable[[TermSet, str], Expr]


def as_written(terms: TermSet, name: str) -> Expr:
    """Return the form of a term as its rows give it, without simplification, which takes most of a derivation."""
    return terms[name].expression


def evaluator(
    title: str, terms: TermSet, rules: Sequence[Rule], printer: PythonPrinter | None = None, form: Form = as_written,
) -> dict[str, Any]:
    """Data of ``evaluator.py.jinja``: every term of the set in the form ``form``, and every rule."""
    every = list(terms.terms.values())
    printer = printer or EvaluatorPrinter()
    return {
        "title": title,
        "inputs": _inputs(terms, every, rules),
        "terms": [_term(terms, term, printer, form) for term in every],
        "rules": [_rule(rule, printer) for rule in rules],
        "rule_terms": [_term(terms, term, printer, form) for term in _rule_terms(terms, rules)],
    }


def script(
    name: str, title: str, terms: TermSet, rules: Sequence[Rule], times: TermSet | None, rows: TermSet | None,
) -> dict[str, Any]:
    """Data of ``evaluator.js.jinja``: what Python's evaluators have, and the verdicts, as ``shardmath.<name>``.

    ``times`` are the terms of step time, ``rows`` the sizes of single tensors; None where they are not counted. Each
    rule has its own inputs and terms.
    """
    printer = JavascriptPrinter()
    data = evaluator(title, terms, rules, printer, computed)
    memory = {item["name"]: item for item in data["terms"]}
    return {
        **data, "name": name, "verdicts": verdicts(VERDICTS), "rule_80": verdicts(RULE_80),
        "limits": LIMITS, "rank_limits": RANK_LIMITS,
        "rule_share": float(rule_share()),
        "run_out": run_out(RealJavascriptPrinter),
        "tests": [
            {"inputs": _inputs(terms, own, [rule]), "terms": [memory[term.name] for term in own],
             "source": item["source"]}
            for rule, item in zip(rules, data["rules"], strict=True) for own in [_rule_terms(terms, [rule])]
        ],
        "peak": _alone(terms, ("peak", "process.peak", *LIMITS), printer, computed),
        "times": None, "rows": None,
        **({} if times is None else _beside("times", "time_inputs", terms, times, printer)),
        **({} if times is None else {"seconds": _alone(times, ("step.time",), printer, as_written)}),
        **({} if rows is None else _beside("rows", "row_inputs", terms, rows, printer)),
    }


def _beside(
    name: str, inputs: str, terms: TermSet, others: TermSet, printer: JavascriptPrinter,
) -> dict[str, Any]:
    """Further terms that memory does not have, under ``name``, with those that it has, and with all ``inputs``."""
    every = list(others.terms.values())
    return {
        name: [_term(others, term, printer, as_written) for term in every if term.name not in terms],
        f"known_{name}": [_term(others, term, printer, as_written) for term in every if term.name in terms],
        inputs: _inputs(others, every, ()),
    }


def _alone(terms: TermSet, names: Sequence[str], printer: JavascriptPrinter, form: Form) -> dict[str, Any]:
    """Return some terms with all that they are made of, and the inputs of these."""
    own = terms.closure(names)
    return {"inputs": _inputs(terms, own, ()), "terms": [_term(terms, term, printer, form) for term in own]}


def _inputs(terms: TermSet, own: Iterable[Term], rules: Sequence[Rule]) -> list[str]:
    """Return names of the inputs of some terms and rules, in the order of the parameters."""
    needed = _needed_inputs(own, rules) - terms.by_symbol.keys()
    return [parameter.name for parameter in BY_LETTER.values() if parameter.symbol in needed]


def verdicts(items: Sequence[Verdict]) -> list[dict[str, str]]:
    """Name, meaning and the head of the branch of every verdict; the last one is for all that is left."""
    printer = PythonPrinter()
    heads = [f"elif {printer.doprint(item.condition)}" for item in items]
    heads[0], heads[-1] = heads[0].removeprefix("el"), "else"
    return [
        {
            "name": item.name, "meaning": item.meaning, "branch": head,
            "script": JavascriptPrinter().doprint(item.condition),
        }
        for item, head in zip(items, heads, strict=True)
    ]


def run_out(printer: type[RealPrinter] = RealPrinter) -> dict[str, Any]:
    """Return the probability of running out, and the limit of a process for one, as source."""
    names = {ALLOCATED: "allocated", PROCESS: "process", M: "gpu_memory", MARGIN: "margin", PROBABILITY: "probability"}
    source = printer(names).doprint
    return {
        "certain": source(CERTAIN), "margin": source(margin(M, PROCESS)),
        "probability": source(run_out_probability(MARGIN)), "limit": source(process_limit(PROBABILITY)),
        "parts": PARTS, "most_risk": float(MOST_RISK),
    }


def _term(terms: TermSet, term: Term, printer: PythonPrinter, form: Form) -> dict[str, str]:
    return {
        "name": term.name,
        "unit": term.unit,
        "meaning": term.meaning,
        "identifier": identifier(term.symbol),
        "source": _printed(type(printer), form(terms, term.name)),  # type: ignore[arg-type]
    }


@cache
def _printed(printer: type[PythonPrinter], expression: Expr) -> str:
    """Print an expression once: time has terms of memory, and stages have terms that are the same for all."""
    return printer().doprint(expression)


def _rule(rule: Rule, printer: PythonPrinter) -> dict[str, str]:
    return {
        "name": rule.name,
        "field": BY_LETTER[rule.field].name,
        "text": rule.text,
        "source": printer.doprint(rule.condition),
    }


def _rule_terms(terms: TermSet, rules: Sequence[Rule]) -> list[Term]:
    """Return the terms that conditions refer to, in computing order."""
    by_symbol = terms.by_symbol
    symbols: set[Symbol] = set().union(*(rule.condition.free_symbols for rule in rules))
    return terms.closure(by_symbol[symbol].name for symbol in symbols if symbol in by_symbol)


def _needed_inputs(terms: Iterable[Term], rules: Sequence[Rule]) -> set[Basic]:
    return set().union(*(term.symbols for term in terms), *(rule.condition.free_symbols for rule in rules))
