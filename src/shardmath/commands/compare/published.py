"""Published formulas beside counted ones: every term that means the same, and by which tensors the two differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from shardmath.account.accounting import explanation
from shardmath.account.configured import Configuration
from shardmath.answers import Amount, Answer
from shardmath.commands.compare.tensors import Rank
from shardmath.errors import InputError

if TYPE_CHECKING:
    from sympy import Expr, Symbol

    from shardmath.symbolic.published import Counterpart, PublishedSet
    from shardmath.symbolic.terms import TermSet

#: Choices that say which models a publication is about.
_ARCHITECTURE = ("normalisation", "mlp", "heads", "layers", "positions", "dropout", "biases")


@dataclass(frozen=True)
class Summand(Answer):
    """One summand of the difference between a published and a counted term."""

    size: str
    """Formula."""
    amount: Amount
    """Its amount, in the unit of the term."""
    tensors: tuple[str, ...]
    """Rows of the ledger that the source leaves out: exactly as large as a negative summand; else none."""


@dataclass(frozen=True)
class PublishedTerm(Answer):
    """A published term beside the terms of the ledger that mean the same, both under the same assumptions."""

    term: str
    """Published term."""
    ledger: tuple[str, ...]
    """Terms of the ledger."""
    meaning: str
    """Meaning of both."""
    remark: str
    """Why they differ."""
    unit: str
    """bytes or elements."""
    published: Amount
    """Amount of the publication."""
    counted: Amount
    """Amount of the ledger."""
    assumed: Mapping[str, Amount]
    """Values by letter that the publication assumes and this configuration has not."""
    summands: tuple[Summand, ...]
    """Summands of the difference; none where it is no short expression."""
    difference: Amount
    """Published minus counted."""


@dataclass(frozen=True)
class PublishedSide(Answer):
    """A published set of formulas beside the ledger, on the first pipeline rank."""

    name: str
    """Name of the set."""
    title: str
    """Its authors and what they assume."""
    total: Amount
    """Bytes of its estimate of the configuration as it is."""
    counted: Amount
    """Bytes of the ledger for the same: the whole rank, or activations where the source has nothing else."""
    terms: tuple[PublishedTerm, ...]
    """Term by term."""


def beside_published(configuration: Configuration) -> tuple[PublishedSide, ...]:
    """Return every published set that is about the model and the implementation of a configuration, beside the ledger.

    Raises InputError if there is none.
    """
    from shardmath.symbolic.published import memory_estimates

    job = configuration.job
    rank = Rank(job, explanation(configuration).ranks[0])
    sides = [
        (item, pairs) for item in memory_estimates()
        if item.implementation == job.evaluator.implementation and (pairs := [*_about(item, rank)])
    ]
    if not sides:
        about = f"{job.model.name} with {job.evaluator.implementation}"
        raise InputError("against", "published", f"must be about a model and an implementation that publications give"
                         f" formulas for, not {about}", "a dense Llama or GPT model with megatron")
    return tuple(_side(item, pairs, rank) for item, pairs in sides)


def _about(item: PublishedSet, rank: Rank) -> Iterator[Counterpart]:
    """Yield the counterparts that are about the architecture and the kernels of the rank."""
    from shardmath.symbolic.implementations import MEGATRON

    chosen = rank.job.evaluator.choices
    for pair in item.correspondence:
        meant = {axis: MEGATRON.choices[axis] for axis in _ARCHITECTURE} | dict(pair.choices)
        if all(chosen[axis] == option for axis, option in meant.items()) and {*pair.ledger} <= rank.terms.terms.keys():
            yield pair


def _side(item: PublishedSet, pairs: Iterable[Counterpart], rank: Rank) -> PublishedSide:
    known = _parameters(rank)
    whole = "total" if f"{item.name}.static" in item.terms else "activations"
    counted = ("stage.total",) if whole == "total" else ("stage.activation", "stage.input")
    return PublishedSide(
        item.name, item.title, _sum(item.terms, (f"{item.name}.{whole}",), known),
        sum(rank.value(rank.terms[name].symbol) for name in counted),
        tuple(_term(item, pair, rank) for pair in pairs),
    )


def _term(item: PublishedSet, pair: Counterpart, rank: Rank) -> PublishedTerm:
    from sympy import sympify

    from shardmath.symbolic.exact import number
    from shardmath.symbolic.parameters import symbol

    own = _parameters(rank)
    assumed = {symbol(letter): number(sympify(value), own) for letter, value in pair.values.items()}
    known = {**own, **assumed}
    published = _sum(item.terms, (pair.term,), known)
    counted = _sum(rank.terms, pair.ledger, known)
    return PublishedTerm(
        pair.term, pair.ledger, pair.meaning, pair.remark, item.terms[pair.term].unit, published, counted,
        {key.name: _plain(value) for key, value in assumed.items() if own.get(key, value) != value},
        tuple(_summands(item.terms, pair, rank, known, published - counted)), published - counted,
    )


def _parameters(rank: Rank) -> dict[Symbol, Expr]:
    """Return the values of all parameters on the first rank that no formula defines."""
    return {symbol: value for symbol, value in rank.known.items() if symbol not in rank.terms.by_symbol}


def _sum(terms: TermSet, names: tuple[str, ...], known: Mapping[Symbol, Expr]) -> int | Fraction:
    """Return the sum of some terms for values of parameters; a derived letter that has a value keeps it."""
    from shardmath.symbolic.exact import number

    values = dict(known)
    for term in terms.closure(names):
        values.setdefault(term.symbol, number(term.expression, values))
    return _plain(sum(values[terms[name].symbol] for name in names))


def _summands(
    published: TermSet, pair: Counterpart, rank: Rank, known: Mapping[Symbol, Expr], whole: int | Fraction,
) -> Iterator[Summand]:
    """Yield the stated difference summand by summand, each with the rows that it is; derived anew for other kernels."""
    if pair.difference is None:
        return
    from sympy import Add

    from shardmath.symbolic.exact import number
    from shardmath.symbolic.printers.text import LinePrinter
    from shardmath.symbolic.published.beside import difference

    expression = difference(published, rank.terms, pair)
    if expression.free_symbols - known.keys() or _plain(number(expression, known)) != whole:
        return
    rows = [*_rows(rank, pair.ledger, pair)]
    for summand in Add.make_args(expression):
        if summand == 0:
            continue
        number_of, product = summand.as_coeff_Mul()
        alike = [(name, size.as_coeff_Mul()[0]) for name, size in rows if size.as_coeff_Mul()[1] == product]
        same = sum(size for _, size in alike) == -number_of
        yield Summand(LinePrinter().doprint(summand), _plain(number(summand, known)),
                      tuple(name for name, _ in alike) if same else ())


def _rows(rank: Rank, names: Iterable[str], pair: Counterpart) -> Iterator[tuple[str, Expr]]:
    """Return the rows that terms are plain sums of, with their sizes under the assumptions of a pair."""
    from sympy import Add, Integer

    from shardmath.symbolic.parameters import symbol

    values = {symbol(letter): value for letter, value in pair.values.items()}
    for name in names:
        term = rank.terms[name]
        for row in term.rows:
            known: dict[Symbol, Expr] = dict(values)
            for inner in rank.terms.closure(
                rank.terms.by_symbol[item].name for item in row.expression.free_symbols if item in rank.terms.by_symbol
            ):
                known.setdefault(inner.symbol, inner.expression.xreplace(known).doit())
            size = row.expression.xreplace(known).doit().expand()
            if size != Integer(0):
                yield f"{row.component.name}.{row.tensor.name}", size
        if not term.rows:
            inside = [rank.terms.by_symbol.get(summand) for summand in Add.make_args(term.expression)]
            if all(inner is not None for inner in inside):
                yield from _rows(rank, [inner.name for inner in inside if inner is not None], pair)


def _plain(value: Any) -> int | Fraction:
    return int(value) if value == int(value) else Fraction(int(value.p), int(value.q))
