"""Columns of points at which printed formulas are compared, with the exact value of every term.

Sizes are random, at edges or those of a real layout. Two more columns give every symbol, also of a term, a value that
has nothing to do with the others, so that nothing cancels and no switch hides a part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import reduce
from random import Random

from oracles.extent import FULL
from read_formulas import Tree, Value, computed, node, quotient
from sympy import Add, And, Basic, Eq, Ge, Gt, Le, Lt, Mul, Ne, Not, Or, Piecewise, Pow, Rational, Symbol

from shardmath.symbolic.documents.worked import EXAMPLE, Layout
from shardmath.symbolic.functions import CeilDiv, Divides, FloorDiv, Iverson, LeastCommonMultiple, Max, Min
from shardmath.symbolic.parameters import BY_LETTER, PARAMETERS, Kind
from shardmath.symbolic.terms import TermSet

Column = tuple[Value, ...]

_SIZES = (1, 2, 3, 4, 6, 7, 8, 12, 16, 64, 100)
#: Letters that are multiples of others, as derived letters that are counted in integers need it.
_MULTIPLES = {"D": "R e et", "N": "t c p D", "B": "b D", "s": "c t", "a": "k t", "f": "t", "L": "p V", "E": "e ng"}
#: Letters that do not have the value of a random point.
_EDGES: tuple[dict[str, int], ...] = (
    {}, {"b": 1}, {"t": 1, "sp": 0}, {"k": 1}, {"p": 1}, {"c": 1, "D": 1}, dict.fromkeys("tcpDebkmV", 1),
)
#: The real layout where layers have experts, of which there must be some.
_EXPERTS = Layout("Mixtral-8x7B v0.1 on 512 H100-80GB", "mixtral-8x7b-v0.1", "h100-80gb", {**EXAMPLE.choices, "e": 8})
_APART = 2
_SIGNS: dict[type[Basic], str] = {
    Add: "+", Mul: "*", Pow: "^", Max: "max", Min: "min", LeastCommonMultiple: "lcm", Iverson: "[", Divides: "∣",
    Eq: "=", Ne: "≠", Le: "≤", Lt: "<", Ge: "≥", Gt: ">", And: "and", Or: "or", Not: "not",
}


class Points:
    """Values of parameters and terms; in the first ``together`` columns they belong together."""

    def __init__(self, terms: TermSet, fixed: Mapping[str, int]) -> None:
        random = Random(0)
        real = _EXPERTS if any(name.startswith("expert_layer.") for name in terms.terms) else EXAMPLE
        rows = list(_sizes(random, fixed, real))
        self.together = len(rows)
        self._known: dict[Basic, Column] = {}
        self._read: dict[Tree, Column] = {}
        inputs = [
            item for item in BY_LETTER.values() if item.kind is not Kind.DERIVED or item.symbol in terms.as_inputs
        ]
        for item in inputs:
            self._add(item.symbol, tuple(row.get(item.letter, 2) for row in rows), random)
        for term in terms.terms.values():
            self._add(term.symbol, self.of(term.expression), random)

    def _add(self, symbol: Symbol, column: Column, random: Random) -> None:
        apart = [Fraction(random.randint(1, 999), random.randint(1, 9)) for _ in range(_APART)]
        self._known[symbol] = self._read[node(f".{symbol.name}")] = (*column[:self.together], *apart)

    def of(self, expression: Basic) -> Column:
        """Compute an expression, node by node."""
        column = self._known.get(expression)
        if column is None:
            column = self._known[expression] = self._computed(expression)
        return column

    def _computed(self, expression: Basic) -> Column:
        if isinstance(expression, Rational):
            return (quotient(int(expression.p), int(expression.q)),) * (self.together + _APART)
        if isinstance(expression, Piecewise):
            *pairs, (otherwise, _) = expression.args
            parts = [self.of(part) for pair in pairs for part in pair.args]
            return _along("cases", *parts, self.of(otherwise))
        parts = list(map(self.of, expression.args))
        if expression.func in (CeilDiv, FloorDiv):
            return _along("⌈" if expression.func is CeilDiv else "⌊", _along("/", *parts))
        if isinstance(expression, Add | Mul):
            return reduce(lambda left, right: _along(_SIGNS[expression.func], left, right), parts)
        return _along(_SIGNS[expression.func], *parts)

    def read(self, tree: Tree) -> Column:
        """Compute what was read; its names are those of symbols."""
        column = self._read.get(tree)
        if column is None:
            if tree.parts:
                column = _along(tree.sign, *map(self.read, tree.parts))
            else:
                column = (int(tree.sign),) * (self.together + _APART)
            self._read[tree] = column
        return column


def _along(sign: str, *columns: Column) -> Column:
    return tuple(computed(sign, *values) for values in zip(*columns, strict=True))


def _sizes(random: Random, fixed: Mapping[str, int], layout: Layout) -> Iterator[dict[str, int]]:
    """Draw layouts, each on a random rank, the first or the last, then take a real one; few of them keep every rule.

    ``ORACLES=full`` has each layout on all three ranks.
    """
    values: dict[str, int] = {}
    for place, edge in enumerate(_EDGES):
        values = {
            item.letter: random.randint(0, 1) if item.is_switch else max(item.minimum, random.choice(_SIZES))
            for item in PARAMETERS if item.kind is not Kind.DERIVED
        } | edge | dict(fixed)
        for letter, parts in _MULTIPLES.items():
            if letter not in {**edge, **fixed}:
                values[letter] *= math.prod(values[part] for part in parts.split())
        ranks = random.randrange(values["p"]), 0, values["p"] - 1
        yield from ({**values, "r": rank} for rank in (ranks if FULL else ranks[place % 3:][:1]))
    real = {**values, **layout.values(), **fixed}
    yield from ({**real, "r": rank} for rank in dict.fromkeys((0, real["p"] - 1)))
