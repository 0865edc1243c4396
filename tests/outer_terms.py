"""Terms of local updates by the number of elements that a rank updates."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer, Symbol

from shardmath.symbolic.implementations import TORCHTITAN
from shardmath.symbolic.parameters import symbol
from shardmath.symbolic.terms import TermSet
from shardmath.symbolic.timing import build_all


def ledger(option: str, name: str, elements: int, **letters: int) -> int:
    """A term of rank r with so many elements that it updates."""
    terms = build_all(TORCHTITAN.with_choices(local_updates=option))
    known: dict[Symbol, Expr] = {symbol(letter): Integer(value) for letter, value in letters.items()}
    known[terms["stage.shard_elements"].symbol] = Integer(elements)
    return int(_put_in(terms, terms[name].expression, known))


def _put_in(terms: TermSet, expression: Expr, known: Mapping[Symbol, Expr]) -> Expr:
    value = expression.xreplace(dict(known))
    inner = {part: _put_in(terms, terms.by_symbol[part].expression, known)
             for part in value.free_symbols if part in terms.by_symbol}
    return value.xreplace(inner).doit()
