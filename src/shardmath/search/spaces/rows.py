"""The legal layouts of a part of the standard space, with the value of every symbol as a number or a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.columns import formula_column, rules_met, term_column
from shardmath.search.spaces import Part
from shardmath.search.spaces.texts import Texts

#: Rows that are evaluated at a time: columns of them stay in the processor's cache.
_ROWS = 1 << 14


@dataclass(frozen=True)
class Legal:
    """Rows of a part: ``numbers`` of their configurations, and the values of symbols by name."""

    part: Part
    numbers: NDArray[np.int64]
    symbols: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self, name: str) -> NDArray[np.float64]:
        """Return a symbol as a column."""
        values: NDArray[np.float64] = np.broadcast_to(self.symbols[name], self.numbers.shape)
        return values

    def term(self, name: str) -> NDArray[np.float64]:
        """Return a term of memory, or else of time, as a column."""
        values = np.empty(len(self))
        module = next(module for module in self.part.modules if name in module.TERMS)
        for start in range(0, len(self), _ROWS):
            rows = slice(start, start + _ROWS)
            values[rows] = term_column(module, name, {
                symbol: value[rows] if np.ndim(value) else value for symbol, value in self.symbols.items()
            })
        return values

    def holds(self, condition: str) -> NDArray[np.bool_]:
        """Return which rows meet a condition over symbols and terms."""
        terms = {name for module in self.part.modules for name in module.TERMS} - self.symbols.keys()
        columns = {name: self.term(name) for name in sorted(Texts(terms).uses(condition))}
        met: NDArray[np.bool_] = np.broadcast_to(formula_column(condition, {**self.symbols, **columns}), len(self))
        return met

    def with_values(self, values: Mapping[str, int]) -> Legal:
        """Return the same rows with other values of symbols."""
        part = replace(self.part, fixed={**self.part.fixed, **values})
        return Legal(part, self.numbers, {**self.symbols, **{name: float(value) for name, value in values.items()}})

    def those(self, among: NDArray[np.bool_]) -> Legal:
        """Return some rows alone."""
        symbols = {name: value[among] if np.ndim(value) else value for name, value in self.symbols.items()}
        return Legal(self.part, self.numbers[among], symbols)


def legal_rows(part: Part, numbers: NDArray[np.int64] | None = None) -> Legal:
    """Return the configurations of a part that meet its constraints and the rules of its evaluator, in their order.

    Of ``numbers`` those, else of all configurations.
    """
    if numbers is None:
        numbers = np.arange(part.size)
    parts = [_legal(part, numbers[start:start + _ROWS]) for start in range(0, max(1, len(numbers)), _ROWS)]
    symbols = {
        name: np.concatenate([rows.symbols[name] for rows in parts]) if np.ndim(value) else value
        for name, value in parts[0].symbols.items()
    }
    return Legal(part, np.concatenate([rows.numbers for rows in parts]), symbols)


def constrained(part: Part, numbers: NDArray[np.int64], broken: NDArray[np.int64] | None = None) -> Legal:
    """Return those of some configurations that meet what follows from axes and derived symbols, legal or not.

    ``broken`` counts the others, each by the place of the first constraint that it breaks.
    """
    symbols: dict[str, Any] = {name: float(value) for name, value in part.fixed.items()}
    places = np.unravel_index(numbers, [axis.size for axis in part.axes])
    for axis, place in zip(part.axes, places, strict=True):
        symbols |= {symbol: np.asarray(values, np.float64)[place] for symbol, values in axis.values.items()}
    for name, text in part.derived.items():
        symbols[name] = formula_column(text, symbols)
    rows = Legal(part, numbers, symbols)
    kept = np.ones(len(rows), np.bool_)
    for number, constraint in enumerate(part.constraints):
        if constraint.automatic:
            met = np.broadcast_to(formula_column(constraint.text, rows.symbols), len(rows))
            if broken is not None:
                broken[number] += np.count_nonzero(kept & ~met)
            kept &= met
    return rows.those(kept)


def _legal(part: Part, numbers: NDArray[np.int64]) -> Legal:
    """Return those of some configurations that are legal."""
    rows = constrained(part, numbers)
    rows = _kept(rows, rules_met(part.evaluator.terms, rows.symbols))
    declared = [constraint.text for constraint in part.constraints if not constraint.automatic]
    return _kept(rows, [rows.holds(text) for text in declared])


def _kept(rows: Legal, conditions: Iterable[Any]) -> Legal:
    """Return the rows that meet all conditions."""
    kept = np.ones(len(rows), np.bool_)
    for met in conditions:
        kept &= met
    return rows.those(kept)
