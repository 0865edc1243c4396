"""Data for the section of an exported appendix on one configuration: its values put to every term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sympy import Integer, Rational, Symbol

from ..accounts import build
from ..ledger import Role
from ..parameters import symbol
from ..printers.latex import LatexPrinter
from ..terms import Term, TermSet
from .forms import shown
from .scope import Scope
from .tex import code, digits, gib, math, named

_ROLES = [role.value for role in Role]
#: Ranks of one table.
_BESIDE = 2


@dataclass(frozen=True)
class Kept:
    """Memory of one pipeline rank at its peak: the lines of its account, and every term by name.

    ``lines`` are component, role and bytes. ``share`` is that of the GPU's memory.
    """

    rank: int
    in_flight: int
    site: str
    total: int
    share: float
    verdict: str
    lines: Sequence[tuple[str, str, Fraction]]
    terms: Mapping[str, int | Fraction]


@dataclass(frozen=True)
class Time:
    """The time of a step: seconds in all, on which rank, part by part with a few words, and rates in words."""

    seconds: float
    rank: int
    spent: Sequence[tuple[str, float, str]]
    rates: str


@dataclass(frozen=True)
class Configured:
    """One configuration with its numbers.

    ``values`` has the parameters by name, ``own`` those that a list of layers gives to each rank. Tables by rank show
    the ranks ``shown``. Without ``time`` a text says why it is not known.
    """

    title: str
    values: Mapping[str, int]
    own: Sequence[Mapping[str, int]]
    memory: int
    ranks: Sequence[Kept]
    shown: Sequence[int]
    time: Time | None
    time_unknown: str

    @property
    def peak(self) -> Kept:
        """The rank that keeps most; the first of several."""
        return max(self.ranks, key=lambda item: item.total)


def configured(scope: Scope, configuration: Configured) -> dict[str, Any]:
    """Prepare the section."""
    terms = build(scope.main)
    printer = LatexPrinter(terms.terms.values())
    ranks = [configuration.ranks[rank] for rank in configuration.shown]
    varying = _varying(terms)
    peak = configuration.peak
    return {
        "title": named(configuration.title),
        "peak": digits(Rational(peak.total)), "peak_gib": gib(Rational(peak.total)), "peak_rank": str(peak.rank),
        "site": code(peak.site), "share": f"{100 * peak.share:.1f}", "verdict": peak.verdict,
        "memory_gib": f"{configuration.memory / 2**30:g}",
        "values": [
            {"letter": math(item.symbol), "name": code(item.name), "unit": item.unit,
             "value": digits(Rational(configuration.values[item.name]))}
            for item in scope.parameters if item.name in configuration.values
        ],
        "own": [
            {"letter": math(item.symbol), "name": code(item.name),
             "value": ", ".join(str(own[item.name]) for own in configuration.own)}
            for item in scope.parameters if configuration.own and item.name in configuration.own[0]
        ],
        "all_ranks": [_line(item) for item in configuration.ranks],
        "left_out": len(configuration.shown) < len(configuration.ranks),
        "shown": ", ".join(map(str, configuration.shown)),
        "roles": _ROLES, "matrices": [_matrix(item) for item in ranks],
        "same": [
            {**_symbol(printer, terms[name]), "unit": terms[name].unit, **_cell(terms[name], peak)}
            for name in shown(terms) if name not in varying
        ],
        "by_rank": [
            {"titles": [f"$r = {item.rank}$" for item in part],
             "rows": [{**_symbol(printer, terms[name]), "cells": [_cell(terms[name], item) for item in part]}
                      for name in shown(terms) if name in varying]}
            for part in (ranks[start:start + _BESIDE] for start in range(0, len(ranks), _BESIDE))
        ],
        "time": None if configuration.time is None else _time(configuration.time),
        "time_unknown": named(configuration.time_unknown),
    }


def _varying(terms: TermSet) -> set[str]:
    """The terms that may differ from rank to rank: of rank r, or of what a list of layers gives to it."""
    known: set[Symbol] = {symbol("r"), *terms.as_inputs}
    varying = set()
    for name, term in terms.terms.items():
        if term.owner == "stage" or term.expression.free_symbols & known:
            varying.add(name)
            known.add(term.symbol)
    return varying


def _symbol(printer: LatexPrinter, term: Term) -> dict[str, str]:
    return {"symbol": f"${printer.doprint(term.symbol)}$", "name": code(term.name)}


def _cell(term: Term, item: Kept) -> dict[str, str]:
    value = Rational(item.terms[term.name])
    return {"value": digits(value), "gib": gib(value) if term.unit == "bytes" else ""}


def _line(item: Kept) -> dict[str, str]:
    return {
        "rank": str(item.rank), "in_flight": str(item.in_flight), "site": code(item.site),
        "total": digits(Rational(item.total)), "gib": gib(Rational(item.total)), "share": f"{100 * item.share:.1f}",
        "verdict": item.verdict,
    }


def _matrix(item: Kept) -> dict[str, Any]:
    """GiB of one rank by component and role; the last row and column are the sums."""
    sizes: dict[str, dict[str, Rational]] = {}
    for component, role, size in item.lines:
        row = sizes.setdefault(component, dict.fromkeys(_ROLES, Integer(0)))
        row[role] += Rational(size)
    sums = [sum((row[role] for row in sizes.values()), Integer(0)) for role in _ROLES]
    return {
        "rank": f"$r = {item.rank}$",
        "rows": [
            {"name": code(name), "cells": [gib(cell) if cell else "" for cell in (*row.values(), sum(row.values()))]}
            for name, row in sizes.items()
        ],
        "sums": [gib(cell) for cell in (*sums, sum(sums, Integer(0)))],
    }


def _time(time: Time) -> dict[str, Any]:
    return {
        "seconds": f"{time.seconds:.3f}", "rank": str(time.rank), "rates": named(time.rates),
        "spent": [
            {"name": code(part), "seconds": f"{seconds:.3f}", "share": f"{100 * seconds / time.seconds:.1f}",
             "meaning": named(words)}
            for part, seconds, words in time.spent
        ],
    }
