"""Data for the appendix's worked example: every term with its exact value, for every pipeline rank."""

from __future__ import annotations

from typing import Any

from sympy import Rational

from ..accounts import build
from ..accounts.peak import CANDIDATES
from ..accounts.stage import STATE_ROLES
from ..accounts.units import COUNTED_ROLES
from ..components import all_components
from ..implementations import MEGATRON
from ..parallel.legality import rules_for
from ..parameters import PARAMETERS, Kind, symbol
from ..printers.latex import LatexPrinter
from ..terms import Term
from ..verdict import RULE_80
from .tex import code, digits, escape, fixed_point, gib, math
from .worked import EXAMPLE, by_rank, verdict

_ROLES = [*(role.value for role in STATE_ROLES), *(role.value for role in COUNTED_ROLES)]
_PADDING = "padding"


def example() -> dict[str, Any]:
    """Prepare the example: its values, the rules it keeps, terms of one instance, tables by rank, verdict.

    Raises ValueError if the example breaks a rule.
    """
    values = EXAMPLE.values()
    ranks = by_rank(EXAMPLE)
    _refuse_illegal(values, ranks[0])
    terms = list(build(MEGATRON).terms.values())
    printer = LatexPrinter(terms)
    shared = [term for term in terms if not (_depends_on_rank(term) or _is_of_an_end(term))]
    return {
        "example_title": escape(EXAMPLE.title),
        "example_values": [
            {"letter": math(item.symbol), "name": code(item.name), "value": digits(Rational(values[item.letter]))}
            for item in PARAMETERS if item.kind not in (Kind.DERIVED, Kind.MACHINE) and item.letter != "r"
        ],
        "example_shared": [
            {"symbol": f"${printer.doprint(term.symbol)}$", "name": code(term.name), "unit": term.unit,
             "value": digits(ranks[0][term.name]), "gib": _gib(term, ranks[0][term.name])}
            for term in shared
        ],
        "example_ranks": [
            {"symbol": f"${printer.doprint(term.symbol)}$", "name": code(term.name),
             "values": [digits(rank[term.name]) for rank in ranks]}
            for term in terms if _depends_on_rank(term)
        ],
        "example_columns": [f"$r = {rank}$" for rank in range(len(ranks))],
        "example_matrices": [_matrix(rank, totals) for rank, totals in enumerate(ranks)],
        "example_roles": _ROLES,
        **_answer(values, ranks),
    }


def _depends_on_rank(term: Term) -> bool:
    return term.owner == "stage" or term.name == "in_flight"


def _is_of_an_end(term: Term) -> bool:
    """Tell whether a term is one of a rank that can have the peak, but not its total."""
    rank, _, rest = term.name.partition(".")
    return rank in CANDIDATES and rest not in ("", "total")


def _gib(term: Term, value: Rational) -> str:
    return gib(value) if term.unit == "bytes" else ""


def _matrix(rank: int, totals: dict[str, Rational]) -> dict[str, Any]:
    """Prepare GiB of one rank by component and role; the last row and column are the sums."""
    names = [*(component.name for component in all_components()), _PADDING]
    rows = []
    for name in names:
        cells = [totals.get(f"stage.{name}.{role}", Rational(0)) for role in _ROLES]
        if any(cells):
            rows.append({"name": code(name), "cells": [_blank_zero(cell) for cell in (*cells, sum(cells))]})
    sums = [totals[f"stage.{role}"] for role in _ROLES]
    transient = totals["stage.total"] - sum(sums, Rational(0))
    return {
        "rank": f"$r = {rank}$", "rows": rows, "sums": [gib(cell) for cell in (*sums, sum(sums, Rational(0)))],
        "transient": gib(transient), "total": gib(totals["stage.total"]),
        "total_bytes": digits(totals["stage.total"]), "in_flight": digits(totals["in_flight"]),
    }


def _blank_zero(number: Rational) -> str:
    return gib(number) if number else ""


def _answer(values: dict[str, int], ranks: list[dict[str, Rational]]) -> dict[str, Any]:
    peak = ranks[0]["peak"]
    memory = values["M"]
    return {
        "example_peak": digits(peak), "example_peak_gib": gib(peak), "example_memory_gib": gib(Rational(memory), 0),
        "example_share": fixed_point(100 * peak / memory, 1),
        "example_verdict": verdict(ranks[0], memory), "example_rule": verdict(ranks[0], memory, RULE_80),
        "example_peak_ranks": ", ".join(
            str(rank) for rank, totals in enumerate(ranks) if totals["stage.total"] == peak
        ),
    }


def _refuse_illegal(values: dict[str, int], totals: dict[str, Rational]) -> None:
    known = {symbol(letter): Rational(value) for letter, value in values.items()}
    known |= {term.symbol: totals[term.name] for term in build(MEGATRON).terms.values()}
    broken = [rule.name for rule in rules_for(MEGATRON) if rule.condition.xreplace(known) != True]  # noqa: E712
    if broken:
        raise ValueError(f"{EXAMPLE.title} breaks {broken}")
