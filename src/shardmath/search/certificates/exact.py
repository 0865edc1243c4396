"""Configurations in exact fractions, by the plain evaluators: what answers and bounds are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from shardmath.account.judged import NAMES, verdict_of
from shardmath.compiler.expressions.graph import Graph, exact
from shardmath.compiler.expressions.source import parse
from shardmath.search.spaces import Best, Front, Part
from shardmath.search.spaces.questions import AMONG


@dataclass(frozen=True)
class Exact:
    """A legal configuration: for each question whether it counts, and its keys."""

    counts: tuple[bool, ...]
    keys: tuple[tuple[Fraction, ...], ...]


def exactly(part: Part, places: Sequence[int], questions: Sequence[Best | Front]) -> Exact | None:
    """Return the configuration at these places, one for each axis; None if it breaks a condition."""
    values: dict[str, int | Fraction] = dict(part.fixed)
    for axis, place in zip(part.axes, places, strict=True):
        values |= {symbol: candidates[place] for symbol, candidates in axis.values.items()}
    try:
        for symbol, text in part.derived.items():
            value = _quantity(text, values)
            if value.denominator != 1:
                return None
            values[symbol] = int(value)
        if not _hold(part, values, automatic=True):
            return None
        terms = part.evaluator.terms
        if not all(terms.rules_met(*(values[name] for name in terms.INPUTS))):
            return None
    except ZeroDivisionError:  # of what later conditions refuse
        return None
    known = dict(values)
    for module in part.modules:
        numbers = module.terms(*(values[name] for name in module.INPUTS))
        known |= {name: Fraction(number) for name, number in numbers.items()} | {**values}
    if not _hold(part, known, automatic=False):
        return None
    place = NAMES.index(verdict_of(known["peak"], known))
    return Exact(
        tuple(question.among == AMONG[-1] or place <= AMONG.index(question.among) for question in questions),
        tuple(tuple(_quantity(text, known) for text in question.by) for question in questions),
    )


def _hold(part: Part, values: Mapping[str, int | Fraction], *, automatic: bool) -> bool:
    return all(_value(item.text, values) for item in part.constraints if item.automatic is automatic)


def _quantity(text: str, values: Mapping[str, int | Fraction]) -> Fraction:
    return Fraction(_value(text, values))


def _value(text: str, values: Mapping[str, int | Fraction]) -> Fraction | bool:
    graph = Graph()
    return exact([parse(text, graph, graph.name)], values)[0]
