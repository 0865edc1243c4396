"""Data for the appendix's sections on definitions, totals and the verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sympy import Integer

from ..accounts import build
from ..implementations import Implementation
from ..overheads import OVERHEADS, Overhead
from ..parameters import BY_LETTER
from ..simplify import RULES
from ..sources import BY_KEY, SOURCES, Source
from ..verdict import RULE_80, SOURCE, VERDICTS, Verdict, room
from .forms import definitions_of, total_groups
from .scope import Scope
from .tensors import term_rows
from .tex import cite, code, digits, escape, math


def totals(scope: Scope) -> dict[str, Any]:
    """Prepare the terms that belong to no single component, by implementation and group."""
    return {
        "definitions": [
            {"implementation": code(item.framework), "rows": term_rows(item, definitions_of(build(item)))}
            for item in scope.implementations
        ],
        "totals": [
            {"implementation": code(item.framework), "title": escape(item.title), "groups": _groups(item)}
            for item in scope.implementations
        ],
        "simplification": [{"name": rule.name, "meaning": escape(rule.meaning)} for rule in RULES],
        "verdicts": _verdicts(VERDICTS), "rule": _verdicts(RULE_80), "room": math(room).strip("$"),
        "verdict_source": cite(SOURCE),
        "aggregates": [
            {"name": code(item.name), "title": escape(item.title), "source": cite(item.source),
             "moments": ", ".join(map(code, item.sites)),
             "choices": "; ".join(f"{code(axis)} {' or '.join(map(code, allowed))}"
                                  for axis, allowed in item.options.items())}
            for item in scope.aggregates
        ],
        "overheads": [_overhead(item) for item in OVERHEADS],
    }


def _verdicts(items: Iterable[Verdict]) -> list[dict[str, str]]:
    return [{"name": item.name, "condition": math(item.condition) if item.condition.free_symbols else "otherwise",
             "meaning": escape(item.meaning)} for item in items]


def bibliography(keys: Collection[str] = BY_KEY.keys()) -> dict[str, Any]:
    """Prepare the references: all, or those with some keys."""
    return {"sources": [_source(item) for item in SOURCES if item.key in keys]}


def _groups(item: Implementation) -> list[dict[str, Any]]:
    return [
        {"title": group.title, "rows": rows} for group in total_groups(build(item))
        if (rows := term_rows(item, group.terms, meanings=not group.systematic))
    ]


def _overhead(item: Overhead) -> dict[str, str]:
    parameter = BY_LETTER[item.letter]
    numbers = (item.typical, *(item.typical * end // 1000 for end in (item.low, item.high)))
    typical, low, high = (digits(Integer(number)) for number in numbers)
    return {
        "letter": math(parameter.symbol), "name": code(parameter.name), "typical": typical,
        "range": f"{low} to {high}" if item.low < item.high else "measured",
        "meaning": escape(item.meaning), "source": cite(item.source),
    }


def _source(item: Source) -> dict[str, str]:
    return {
        "key": item.key, "authors": escape(item.authors).rstrip("."), "title": escape(item.title),
        "year": str(item.year), "where": escape(item.where), "url": item.url,
    }
