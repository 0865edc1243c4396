"""Terms: named sums of ledger rows by component, role and pipeline rank, which refer to each other by symbol."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import prod

from sympy import Add, Basic, Expr, Integer, Mul, Piecewise, Pow, S, Symbol, count_ops, sympify

from .functions import Iverson
from .ledger import Component, Lifetime, Tensor
from .parameters import BY_LETTER, PARAMETERS, Kind

_SWITCHES = frozenset(parameter.symbol for parameter in PARAMETERS if parameter.is_switch)


@dataclass(frozen=True)
class Contribution:
    """One ledger row inside a term: its size on one rank as a product, in the unit of the term."""

    component: Component
    tensor: Tensor
    expression: Expr


@dataclass(frozen=True)
class Term:
    """A named expression.

    ``expression`` is the form as written: its factors and summands stand in the order of the ledger,
    and other terms appear as their symbols. ``symbol`` is what other terms call it.
    """

    name: str
    symbol: Symbol
    expression: Expr
    unit: str
    meaning: str
    rows: tuple[Contribution, ...] = ()

    @cached_property
    def symbols(self) -> frozenset[Symbol]:
        """The symbols in the expression; SymPy looks through all of it each time that it is asked."""
        return frozenset(self.expression.free_symbols)

    @property
    def owner(self) -> str:
        """The owner of the term: a component, ``layer``, ``stage`` for rank r, a rank; nothing for a definition."""
        owner, dot, _ = self.name.partition(".")
        return owner if dot else ""

    @property
    def kind(self) -> str:
        """The last part of the name: the size or time of its owner that the term counts."""
        return self.name.rpartition(".")[2]


@dataclass(eq=False)
class TermSet:
    """Terms in an order in which each can be computed from those before it; a term never changes.

    ``as_inputs`` are derived letters that are inputs here, because no formula defines them; ``by_symbol`` are the
    terms by the symbol that stands for them, ``places`` their numbers in the order. Terms of ``base`` are taken over
    where others need them.
    """

    name: str
    terms: dict[str, Term] = field(default_factory=dict)
    identifiers: dict[str, str] = field(default_factory=dict)
    as_inputs: frozenset[Symbol] = frozenset()
    by_symbol: dict[Symbol, Term] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    base: TermSet | None = None

    def add(
        self, name: str, expression: Expr, unit: str, meaning: str, rows: tuple[Contribution, ...] = ()
    ) -> Symbol:
        """Append a term and return its symbol.

        Raises ValueError if the name is taken or a symbol of the expression is not known yet.
        """
        return self._append(Term(name, term_symbol(name), expression, unit, meaning, rows))

    def _append(self, term: Term) -> Symbol:
        name = term.name
        if name in self.terms:
            raise ValueError(f"term {name} defined twice")
        plain = _plain(name)
        if plain in self.identifiers:
            raise ValueError(f"terms {self.identifiers[plain]} and {name} would share a variable of generated code")
        self.identifiers[plain] = name
        if self.base is not None:
            known = self.base.by_symbol
            if needed := [known[part].name for part in term.symbols if part in known and part not in self.by_symbol]:
                self.include(needed)
        unknown = [part for part in term.symbols - _INPUTS - self.as_inputs if part not in self.by_symbol]
        if unknown:
            raise ValueError(f"term {name} uses {sorted(map(str, unknown))} before their definition")
        self.places[name] = len(self.places)
        self.terms[name] = self.by_symbol[term.symbol] = term
        return term.symbol

    def include(self, names: Iterable[str]) -> None:
        """Append terms of the base, and of what they need those that are not here yet."""
        assert self.base is not None
        for term in self.base.closure(names):
            if term.name not in self.terms:
                self._append(term)

    def __getitem__(self, name: str) -> Term:
        return self.terms[name]

    def __contains__(self, name: str) -> bool:
        return name in self.terms

    def closure(self, names: Iterable[str], kept: Collection[str] = ()) -> list[Term]:
        """Get the named terms and all that they need, in computing order; but not what only those of ``kept`` need."""
        wanted: set[str] = set()
        pending = [self.terms[name] for name in names]
        while pending:
            term = pending.pop()
            if term.name not in wanted:
                wanted.add(term.name)
                if term.name in kept:
                    continue
                pending.extend(self.by_symbol[part] for part in term.symbols if part in self.by_symbol)
        return [self.terms[name] for name in sorted(wanted, key=self.places.__getitem__)]

    def at(
        self, prefix: str, names: Iterable[str], values: Mapping[Symbol, Expr],
        kept: Collection[Symbol] = (), words: str = "",
    ) -> None:
        """Append copies of ``names``, and of what they need, with ``values`` put in; ``prefix`` renames them.

        Terms that do not depend on the replaced symbols are shared, not copied, and so are those of ``kept`` and
        equal copies. ``words`` are added to what they mean, the name of the stage if there are none.
        """
        replaced: dict[Symbol, Expr] = dict(values)
        kept = frozenset(kept)
        for term in self.closure(names):
            if term.symbol in kept or replaced.keys().isdisjoint(term.symbols):
                continue
            name = f"{prefix}.{term.name.removeprefix('stage.')}"
            expression = in_place(term.expression, replaced)
            if name in self.terms and self.terms[name].expression == expression:  # an earlier copy of the same
                replaced[term.symbol] = self.terms[name].symbol
                continue
            meaning = f"{term.meaning}, {words or f'{prefix} stage'}"
            replaced[term.symbol] = self.add(name, expression, term.unit, meaning)


_INPUTS = frozenset(parameter.symbol for parameter in BY_LETTER.values() if parameter.kind is not Kind.DERIVED)
_DERIVED_LETTERS = {
    parameter.name: letter for letter, parameter in BY_LETTER.items() if parameter.kind is Kind.DERIVED
}


def _plain(name: str) -> str:
    """Return the name as a variable of generated code has it."""
    return name.replace(".", "_")


def term_symbol(name: str) -> Symbol:
    """Return the symbol of a term: a derived parameter's letter, else a symbol called like the term."""
    if name in _DERIVED_LETTERS:
        return BY_LETTER[_DERIVED_LETTERS[name]].symbol
    return Symbol(name, nonnegative=True)


@cache
def operations(expression: Expr) -> int:
    """Return how many additions, multiplications and calls of functions it takes to compute the form as it stands.

    SymPy counts them: a comparison costs nothing but what it compares, a bracket one. Cases cost one for each value.
    """
    return _counted(expression) + sum(len(part.args) - 1 for part in _all_cases(expression))


@cache
def _counted(expression: Expr) -> int:
    """Count the operations of every summand once: a sum shares most of them with its other forms and other sums."""
    if not isinstance(expression, Add):
        return int(count_ops(expression))
    negative = [part.as_coeff_Mul()[0].is_negative for part in expression.args]
    parts = (-part if minus else part for part, minus in zip(expression.args, negative, strict=True))
    return len(negative) - 1 + all(negative) + sum(map(_counted, parts))


def _all_cases(expression: Basic) -> Iterator[Basic]:
    """Yield the cases in a form, each as often as it stands there."""
    if expression.has(Piecewise):
        if isinstance(expression, Piecewise):
            yield expression
        for part in expression.args:
            yield from _all_cases(part)


def product(*factors: Expr) -> Expr:
    """Return a flat product in the given order, without factors that are 1; 0 if one of them is 0."""
    flat: list[Expr] = []
    for factor in factors:
        parts = factor.args if isinstance(factor, Mul) else (sympify(factor),)
        flat.extend(part for part in parts if part is not S.One)
    if any(part is S.Zero for part in flat):
        return Integer(0)
    if len(flat) < 2:
        return flat[0] if flat else Integer(1)
    return Mul(*flat, evaluate=False)


def times(number: Expr, rest: Expr) -> Expr:
    """Return a number times an expression; SymPy alone would multiply the summands of a sum with it."""
    return Mul(number, rest, evaluate=False) if isinstance(rest, Add) and number != 1 else number * rest


def total(*summands: Expr) -> Expr:
    """Return a sum in the given order, without the summands that are 0."""
    kept = [summand for summand in map(sympify, summands) if summand is not S.Zero]
    if not kept:
        return Integer(0)
    return kept[0] if len(kept) == 1 else Add(*kept, evaluate=False)


def in_place(expression: Expr, values: Mapping[Symbol, Expr]) -> Expr:
    """Return ``expression`` with symbols replaced, its sums and products still in the order as written."""
    if isinstance(expression, Add):
        return total(*(in_place(summand, values) for summand in expression.args))
    if isinstance(expression, Mul):
        return product(*(in_place(factor, values) for factor in expression.args))
    return values.get(expression, expression) if expression.is_Atom else expression.xreplace(values)


def multiplied_out(expression: Expr) -> Expr:
    """Return ``expression`` without products and powers of sums."""
    return expression.expand(power_base=False, power_exp=False, log=False, basic=False)


def summands(expression: Expr) -> int:
    """Return how many summands an expression has when it is multiplied out."""
    if isinstance(expression, Add):
        return sum(map(summands, expression.args))
    if isinstance(expression, Mul):
        return prod(map(summands, expression.args))
    whole = isinstance(expression, Pow) and expression.exp.is_Integer and expression.exp > 0
    return int(summands(expression.base)**expression.exp) if whole else 1


def reduce_switches(expression: Expr) -> Expr:
    """Use x^2 = x for 0/1 switches and Iverson brackets; write the result as factors x and 1 - x."""
    return Mul(*switch_factors(expression))


def switch_factors(expression: Expr) -> tuple[Expr, ...]:
    """Return the factors of ``reduce_switches``, for a caller who multiplies them with more."""
    flat = multiplied_out(multiplied_out(expression).replace(
        lambda node: node.is_Pow and node.exp.is_Integer and is_zero_or_one(node.base), lambda node: node.base
    ))
    factors: list[Expr] = []
    for factor in Mul.make_args(flat.factor() if isinstance(flat, Add) else flat):
        if isinstance(factor, Add) and is_zero_or_one(factor + 1):
            factors += [Integer(-1), Integer(1) - (factor + 1)]
        elif isinstance(factor, Add) and factor.could_extract_minus_sign():
            factors += [Integer(-1), -factor]
        else:
            factors.append(factor)
    return tuple(factors)


def is_zero_or_one(expression: Expr) -> bool:
    """Return True for a switch and for an Iverson bracket."""
    return expression in _SWITCHES or isinstance(expression, Iverson)


def one_lifetime(rows: Iterable[Tensor]) -> Lifetime:
    """Return the lifetime that all rows share.

    Raises ValueError if they do not share one: then they do not belong into one term.
    """
    lifetimes = {row.lifetime for row in rows}
    if len(lifetimes) != 1:
        raise ValueError(f"rows of different lifetimes in one term: {sorted(map(str, lifetimes))}")
    return lifetimes.pop()
