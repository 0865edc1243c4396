"""A long formula as named parts: terms that are short or used once are put in, all others keep their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sympy import Expr, Symbol

from ..simplify import simplify
from ..terms import Term, operations
from .assumed import Assumed

#: Terms of so many operations at most are put in wherever they are used.
_SHORT = 2
#: A part that one other part uses in one place is put in there if the two have so many operations at most.
_READABLE = 16


def parts_of(formulas: Assumed, term: Term) -> Mapping[Symbol, Expr]:
    """Return the definitions of all parts of ``term``, in computing order; the last is the term itself.

    Put into one another they equal the term where the assumptions hold. Conditions, maxima and roundings are decided
    without looking into parts: the term written out may have fewer of them.
    """
    kept = {part for part in formulas.kept if part in formulas.terms.by_symbol}
    named: dict[Symbol, Expr] = {}
    put_in: dict[Symbol, Expr] = {}
    for item in formulas.terms.closure([term.name], [formulas.terms.by_symbol[part].name for part in kept]):
        if item is not term and (item.symbol in kept or item.symbol in formulas.assumptions.values):
            continue
        value = formulas.of(item.expression.xreplace(put_in), expand=False)
        if item is not term and operations(value) <= _SHORT:
            put_in[item.symbol] = value
        else:
            named[item.symbol] = value
    short = {part: simplify(value, defines=part)[-1].expression for part, value in _used(named, term.symbol).items()}
    return _without_single(short)


def _used(parts: Mapping[Symbol, Expr], last: Symbol) -> dict[Symbol, Expr]:
    """Return the parts that ``last`` needs."""
    needed, pending = set[Symbol](), [last]
    while pending:
        part = pending.pop()
        if part not in needed:
            needed.add(part)
            pending += parts[part].free_symbols & parts.keys()
    return {part: value for part, value in parts.items() if part in needed}


def _without_single(parts: Mapping[Symbol, Expr]) -> dict[Symbol, Expr]:
    """Return the parts with those that stand in one place put in there, as long as that is easy to read."""
    left = dict(parts)
    users = Counter(inner for value in parts.values() for inner in value.free_symbols)
    for part in parts:
        for inner in sorted(left[part].free_symbols & left.keys(), key=str):
            together = left[part].xreplace({inner: left[inner]})
            if users[inner] == 1 and left[part].count(inner) == 1 and operations(together) <= _READABLE:
                left[part] = together
                del left[inner]
    return left
