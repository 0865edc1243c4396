"""Data for the appendix of one configuration: its values, terms of the rank that keeps most, all ranks, its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sympy import Integer, Rational

from ..ledger import Role
from ..printers.latex import LatexPrinter
from .numbered import Numbered, shown_forms
from .scope import Scope
from .tex import broken, code, digits, escape, gib, math, named

_ROLES = [role.value for role in Role]
#: Ranks of one table.
_BESIDE = 6


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
    """Prepare all sections."""
    peak = configuration.peak
    own = configuration.own[peak.rank] if configuration.own else {}
    case = Numbered.of(scope.main, {**configuration.values, **own, "pipeline_rank": peak.rank}, peak.terms)
    printer = LatexPrinter(case.terms.terms.values())
    return {
        "title": named(configuration.title),
        "peak": digits(Rational(peak.total)), "peak_gib": gib(Rational(peak.total)), "peak_rank": str(peak.rank),
        "site": code(peak.site), "share": f"{100 * peak.share:.1f}", "verdict": peak.verdict,
        "memory_gib": f"{configuration.memory / 2**30:g}",
        "values": [
            {"letter": math(item.symbol), "name": code(item.name),
             "value": digits(Rational(configuration.values[item.name]))}
            for item in scope.parameters if item.name in configuration.values
        ],
        "own": [
            {"letter": math(item.symbol), "name": code(item.name),
             "value": ", ".join(str(own[item.name]) for own in configuration.own)}
            for item in scope.parameters if configuration.own and item.name in configuration.own[0]
        ],
        "terms": [
            {"form": broken(f"{printer.doprint(case.terms[name].symbol)} =", printer.pieces(form)),
             "meaning": escape(case.terms[name].meaning), **_value(peak, name, case.terms[name].unit)}
            for name, form in shown_forms(case).items()
        ],
        "all_ranks": [_line(item) for item in _distinct(configuration.ranks)],
        **_by_rank(configuration),
        "time": None if configuration.time is None else _time(configuration.time),
        "time_unknown": named(configuration.time_unknown),
    }


def _value(item: Kept, name: str, unit: str) -> dict[str, str]:
    value = Rational(item.terms[name])
    return {"value": digits(value), "unit": unit, "gib": gib(value) if unit == "bytes" else ""}


def _distinct(ranks: Sequence[Kept]) -> list[tuple[int, Kept]]:
    """Return the first rank of each run of ranks that keep the same, with the last rank of the run."""
    runs: list[tuple[int, Kept]] = []
    for item in ranks:
        known = runs[-1][1] if runs else None
        if known and (known.total, known.in_flight, known.site) == (item.total, item.in_flight, item.site):
            runs[-1] = (item.rank, known)
        else:
            runs.append((item.rank, item))
    return runs


def _line(run: tuple[int, Kept]) -> dict[str, str]:
    last, item = run
    return {
        "rank": str(item.rank) if last == item.rank else f"{item.rank} to {last}", "in_flight": str(item.in_flight),
        "site": code(item.site), "total": digits(Rational(item.total)), "gib": gib(Rational(item.total)),
        "share": f"{100 * item.share:.1f}", "verdict": item.verdict,
    }


def _by_rank(configuration: Configured) -> dict[str, Any]:
    """GiB by component and role, a column for each rank that is shown; the last row has the sums."""
    ranks = [configuration.ranks[rank] for rank in configuration.shown][:_BESIDE]
    if configuration.peak not in ranks:
        ranks[-1] = configuration.peak
    keys = {(component, role): None for item in ranks for component, role, _ in item.lines}
    order = list(dict.fromkeys(component for component, _ in keys))
    sizes = [{(component, role): Rational(size) for component, role, size in item.lines} for item in ranks]
    rows = [
        {"component": code(component), "role": role,
         "cells": [gib(own[component, role]) if own.get((component, role)) else "" for own in sizes]}
        for component, role in sorted(keys, key=lambda key: (order.index(key[0]), _ROLES.index(key[1])))
    ]
    return {
        "columns": [f"$r = {item.rank}$" for item in ranks],
        "rows": [row for row in rows if any(row["cells"])],
        "sums": [gib(sum(own.values(), Integer(0))) for own in sizes],
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
