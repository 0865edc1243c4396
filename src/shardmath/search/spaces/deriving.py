"""Derived symbols of a part: in an order in which each is known when it is needed, whole and in range."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from math import ceil, floor
from typing import TYPE_CHECKING

from shardmath.errors import InputError
from shardmath.input.parameters import limits
from shardmath.search.spaces.declared import Axis, Constraint
from shardmath.search.spaces.symbols import SYMBOLS, value_of
from shardmath.search.spaces.texts import Texts, names_in, quotient

if TYPE_CHECKING:
    from shardmath.search.spaces.texts import Formula

#: Formulas that are derived from derived ones could otherwise fill memory.
_HIGHEST = 64


@dataclass(frozen=True)
class Derived:
    """``formulas`` by symbol, in order; what depends on fixed symbols alone is in ``fixed`` instead.

    ``nodes`` are the formulas over symbols that are not derived, ``constraints`` say where one does not come out
    whole or in range, ``bounds`` are the smallest and largest value of every symbol.
    """

    formulas: Mapping[str, str]
    fixed: Mapping[str, int]
    nodes: Mapping[str, Formula]
    constraints: tuple[Constraint, ...]
    bounds: Mapping[str, tuple[int | Fraction, int | Fraction]]


def derived_of(
    texts: Texts, formulas: Mapping[str, str], axes: Sequence[Axis], fixed: Mapping[str, int], own: Collection[str]
) -> Derived:
    """Read the ``formulas`` of a part with these axes and fixed values; those of ``own`` were declared.

    Raises InputError for a formula that cannot be read, one that depends on itself, a constant one whose value the
    symbol cannot have, and a declared one that cannot come out in range.
    """
    read = {name: texts.quantity(f"derived.{name}", text) for name, text in formulas.items()}
    for name, node in read.items():
        for other in sorted(names_in([node]) - set(SYMBOLS)):
            raise InputError(f"derived.{name}", formulas[name], f"must be made of symbols; {other} is a term")
    constants = dict(fixed)
    within: dict[str, tuple[int | Fraction, int | Fraction]] = {name: (value, value) for name, value in fixed.items()}
    within |= {symbol: (min(values), max(values)) for axis in axes for symbol, values in axis.values.items()}
    kept: dict[str, str] = {}
    nodes: dict[str, Formula] = {}
    constraints: list[Constraint] = []
    degrees: dict[str, int] = {}
    for name in _in_order(read, formulas):
        field, text = f"derived.{name}", formulas[name]
        texts.refuse_unsafe(field, text, read[name], within)
        if names_in([read[name]]) <= constants.keys():
            value = Fraction(texts.value(read[name], constants))
            constants[name] = value_of(field, name, int(value) if value.denominator == 1 else float(value))
            within[name] = (constants[name], constants[name])
            continue
        degrees[name] = texts.degree(read[name], degrees)
        if degrees[name] > _HIGHEST:
            raise InputError(field, text, f"must not have a power above {_HIGHEST} of any symbol")
        low, high = texts.within(read[name], within) or limits(name)
        least, most = limits(name)
        if name in own and (high < least or low > most):
            raise InputError(field, text, f"must come out from {least} to {most}")
        constraints += _legal(name, field, text, (ceil(low), floor(high)))
        within[name] = (max(ceil(low), least), max(min(floor(high), most), least))
        kept[name] = text
        nodes[name] = texts.filled(read[name], nodes)
    return Derived(kept, constants, nodes, tuple(constraints), within)


def _in_order(read: Mapping[str, Formula], formulas: Mapping[str, str]) -> list[str]:
    needs = {name: sorted(names_in([node]) & read.keys()) for name, node in read.items()}
    try:
        return [*TopologicalSorter(needs).static_order()]
    except CycleError as error:
        circle = error.args[1]
        rule = f"must not depend on itself: {' <- '.join(circle)}"
        raise InputError(f"derived.{circle[0]}", formulas[circle[0]], rule) from None


def _legal(name: str, field: str, text: str, within: tuple[int, int]) -> list[Constraint]:
    """Return the constraint that keeps a derived symbol whole and in range, if it needs one."""
    least, most = limits(name)
    conditions = []
    parts = quotient(field, text)
    if parts is not None:
        conditions.append(f"divides({parts[1]}, {parts[0]})")
    if within[0] < least:
        conditions.append(f"{name} >= {least}")
    if within[1] > most:
        conditions.append(f"{name} <= {most}")
    return [Constraint(name, " and ".join(conditions), automatic=True)] if conditions else []
