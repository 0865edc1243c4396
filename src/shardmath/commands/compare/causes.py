"""Why a tensor has another size than in another configuration: the inputs that its formula depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from shardmath.commands.compare.changes import IMPLEMENTATION, MOMENT, kernel
from shardmath.commands.compare.tensors import Part, Rank

if TYPE_CHECKING:
    from sympy import Expr, Symbol


@dataclass(frozen=True)
class Causes:
    """Looks for causes between the same two ranks."""

    before: Rank
    after: Rank
    _inputs: dict[Symbol, Set[str]] = field(default_factory=dict)

    def of(self, before: Part | None, after: Part | None) -> tuple[str, ...]:
        """Return names of the changes that explain why a tensor differs, or is in one of the two only.

        A row that another kernel has not is explained by the kernel alone. Inputs explain the rest if putting them
        into the formula of one side gives the size on the other; where they do not, the formulas differ by themselves.
        """
        here, part, there, other = (self.before, before, self.after, after)
        if part is None:
            here, part, there, other = there, other, here, part
        assert part is not None
        if other is None:
            absent = [*_kernels_without(part, there)] or [*_at_another_moment(part, there)]
            if absent:
                return tuple(absent)
        expressions = [part.expression, *([] if other is None else [other.expression])]
        names = dict.fromkeys(sorted(self._inputs_of({symbol for each in expressions for symbol in each.free_symbols})))
        if _value_there(part.expression, there) != (0 if other is None else other.bytes):
            names |= dict.fromkeys(_different_formulas(here, there))
        return tuple(names)

    def _inputs_of(self, symbols: Iterable[Symbol]) -> set[str]:
        return {name for symbol in symbols for name in self._behind(symbol)}

    def _behind(self, symbol: Symbol) -> Set[str]:
        """Return the changed inputs behind a symbol that has another value, or its own name if there are none.

        Followed are only symbols that have another value themselves.
        """
        if symbol not in self._inputs:
            self._inputs[symbol] = frozenset()  # of a symbol that is defined by itself, which there is not
            own, other = self.before.known.get(symbol), self.after.known.get(symbol)
            if own is not None and other is not None and own != other:
                deeper = self._inputs_of({
                    inner for rank in (self.before, self.after) if symbol in rank.terms.by_symbol
                    for inner in rank.terms.by_symbol[symbol].expression.free_symbols
                })
                self._inputs[symbol] = deeper or {_name(symbol, self.before)}
        return self._inputs[symbol]


def _name(symbol: Symbol, rank: Rank) -> str:
    """Return the parameter, or the term, that a symbol stands for."""
    from shardmath.symbolic.parameters import BY_LETTER

    return BY_LETTER[symbol.name].name if symbol.name in BY_LETTER else rank.terms.by_symbol[symbol].name


def _kernels_without(part: Part, there: Rank) -> Iterator[str]:
    """Kernel choices of the other side with which the row, or its component, does not exist."""
    options = [item.options for item in (part.tensor, part.owner) if item is not None]
    choices = there.job.evaluator.choices
    yield from dict.fromkeys(
        kernel(axis) for axes in options for axis, allowed in axes.items() if choices[axis] not in allowed
    )


def _at_another_moment(part: Part, there: Rank) -> Iterator[str]:
    """Yield the moment, if the other side has the line too, but not at its peak."""
    lines = {line.term for line in there.account.lines}
    if part.line in there.terms and part.line not in lines and there.value(there.terms[part.line].expression):
        yield MOMENT


def _value_there(expression: Expr, there: Rank) -> int | Fraction | None:
    """Return the value of a formula with the inputs of the other side, if it has all of them."""
    return there.value(expression) if expression.free_symbols <= there.known.keys() else None


def _different_formulas(here: Rank, there: Rank) -> Iterator[str]:
    own, other = here.job.evaluator, there.job.evaluator
    if own.implementation != other.implementation:
        yield IMPLEMENTATION
    else:
        yield from (kernel(axis) for axis, option in own.choices.items() if other.choices[axis] != option)
