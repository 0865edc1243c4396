"""Published terms beside counted ones: both over the parameters alone, and their difference."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sympy import Add, Expr, Integer, Symbol

from ..accounts import build
from ..functions import Iverson
from ..implementations import IMPLEMENTATIONS, Implementation
from ..parameters import symbol
from ..terms import TermSet
from ..timing import build_all
from .sets import Counterpart, PublishedSet


def implementation_of(item: PublishedSet, pair: Counterpart) -> Implementation:
    """Return the implementation that a published term is compared with, with its choices of kernels."""
    return IMPLEMENTATIONS[pair.implementation or item.implementation].with_choices(**pair.choices)


def ledger_of(item: PublishedSet, pair: Counterpart) -> TermSet:
    """Return the counted terms that a published one is compared with: of memory, or else those of memory and time."""
    implementation = implementation_of(item, pair)
    memory = build(implementation)
    return memory if {*pair.ledger, *pair.over, *pair.kept} <= memory.terms.keys() else build_all(implementation)


def expanded(
    terms: TermSet, names: Collection[str], values: Mapping[str, Expr], kept: Collection[str] = (),
) -> Expr:
    """Return the sum of the named terms over the parameters and the terms ``kept`` alone, with ``values`` put in.

    Raises KeyError for a name that is not in the set.
    """
    known: dict[Symbol, Expr] = {symbol(letter): value for letter, value in values.items()}
    known |= {terms[name].symbol: terms[name].symbol for name in kept}
    for term in terms.closure(names, kept):
        known.setdefault(term.symbol, term.expression.xreplace(dict(known)).doit())
    return sum((known[terms[name].symbol] for name in names), Integer(0))


def sides(published: TermSet, ledger: TermSet, item: Counterpart) -> tuple[Expr, Expr]:
    """Return the published and the counted amount under the assumptions of ``item``.

    No publication speaks of more tensor-parallel ranks than key and value heads.
    """
    theirs = expanded(published, (item.term,), item.values)
    meant = [ledger.by_symbol[part].name for part in theirs.free_symbols if part in ledger.by_symbol]
    theirs = theirs.xreplace({
        ledger[name].symbol: expanded(ledger, (name,), item.values, item.kept) for name in meant
    })
    ours = item.scale * expanded(ledger, item.ledger, item.values, item.kept)
    if item.over:
        ours /= expanded(ledger, item.over, item.values, item.kept)
    few_ranks = {Iverson(symbol("t") > item.values.get("k", symbol("k"))): Integer(0)}
    return theirs.xreplace(few_ranks), ours.xreplace(few_ranks)


def difference(published: TermSet, ledger: TermSet, item: Counterpart) -> Expr:
    """Return published minus counted under the assumptions of ``item``, multiplied out."""
    theirs, ours = sides(published, ledger, item)
    return Add(theirs, -ours).expand()
