"""Simplification as an ordered list of small named rules; each keeps the value and records its cost.

``sympy.simplify`` flattens what papers teach. Here every step has a name and can be shown, and a step
that would need more operations than the form before it is not taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, NamedTuple

from sympy import Add, Basic, Expr, Integer, Mul, Symbol, factor_terms
from sympy.core.operations import LatticeOp

from .conditions import with_cases
from .extremes import with_shared
from .functions import Max
from .memo import Memo
from .parameters import symbol, symbols
from .polynomials import factored
from .terms import TermSet, in_place, is_zero_or_one, multiplied_out, operations, switch_factors, times

a, d, k, t, A, K, kt = symbols("a d k t A K kt")


class Step(NamedTuple):
    """The form of a term after one rule, and the number of operations that it takes."""

    rule: str
    expression: Expr
    operations: int


@dataclass(frozen=True)
class Rule:
    """One rewriting rule: its name, what it does in words, and the rewriting itself.

    The result of a rule that is not ``canonical`` is taken only if it needs fewer operations.
    """

    name: str
    meaning: str
    apply: Callable[[Expr], Expr]
    canonical: bool = False


@cache
def add_like_products(expression: Expr) -> Expr:
    """Multiply numbers and add products that differ only in their numbers; no sum is multiplied out."""
    if isinstance(expression, Add):
        return Add(*map(add_like_products, expression.args))
    if isinstance(expression, Mul):
        parts = list(map(add_like_products, expression.args))
        numbers, rest = ([part for part in parts if part.is_Number is kind] for kind in (True, False))
        return times(Mul(*numbers), Mul(*rest))
    return expression.doit()


@cache
def evaluated(expression: Expr) -> Expr:
    """Multiply numbers, also with each summand of a sum, and add products that differ only in their numbers."""
    return expression.doit()


@cache
def merge_switches(expression: Expr) -> Expr:
    """Collect 0/1 switches in front of each product of sizes, using x^2 = x.

    A form of which that would first make one of three times the operations is left as it is.
    """
    if sum(_multiplied_out(expression)) > 3 * operations(expression):
        return expression
    grouped: dict[Expr, Expr] = {}
    for summand in Add.make_args(multiplied_out(expression)):
        switches: list[Expr] = []
        sizes: list[Expr] = []
        for factor in Mul.make_args(summand):
            base = factor.base if factor.is_Pow else factor
            (switches if factor.is_Number or is_zero_or_one(base) else sizes).append(factor)
        key = Mul(*sizes)
        grouped[key] = grouped.get(key, Integer(0)) + Mul(*switches)
    return Add(*(Mul(*switch_factors(coefficient), key) for key, coefficient in grouped.items()))


def _multiplied_out(expression: Expr) -> tuple[int, int]:
    """Count the summands of ``expression`` multiplied out, and the multiplications in them."""
    if not isinstance(expression, Add | Mul):
        return 1, 0
    summands, inside = zip(*map(_multiplied_out, expression.args), strict=True)
    if expression.is_Add:
        return sum(summands), sum(inside)
    count = prod(summands)
    return count, count * (len(summands) - 1) + sum(count // n * m for n, m in zip(summands, inside, strict=True))


#: Products that have a letter of their own, and what else has one.
_NAMED = ((Max(k / t, Integer(1)), kt), (a * d, A), (k * d, K))


@cache
def name_products(expression: Expr) -> Expr:
    """Write A for a d, K for k d and k_t for the key and value heads of one rank."""
    for product, name in _NAMED:
        if product.free_symbols <= expression.free_symbols:  # SymPy looks through every power and product for it
            expression = expression.subs(product, name)
    return expression


@cache
def factor_common(expression: Expr) -> Expr:
    """Take common factors out of sums."""
    return factor_terms(expression)


RULES: tuple[Rule, ...] = (
    Rule("add like products", "multiply numbers, add products that differ only in their numbers",
         add_like_products, canonical=True),
    Rule("merge switches", "collect 0/1 switches in front of each product of sizes, with x^2 = x",
         merge_switches),
    Rule("name products", "write A for a d, K for k d, k_t for max(k/t, 1)", name_products,
         canonical=True),
    Rule("factor common", "take common factors out of sums and of parts of sums", factored),
    Rule("share in maxima", "take what the arguments of a maximum or minimum share out of it, or what is added into it",
         with_shared),
    Rule("write cases", "join conditions that are multiplied, write what a condition decides as cases", with_cases),
)


#: Rules of the compiled form. Names are for readers; to a compiler they are one more thing to compute.
COMPUTING_RULES: tuple[Rule, ...] = (
    Rule("evaluate", "multiply numbers, add products that differ only in their numbers", evaluated, canonical=True),
    *(rule for rule in RULES if rule.apply is merge_switches),
    Rule("factor all", "take what all summands share out of sums", factor_common),
)

_SETS = {"shown": RULES, "computing": COMPUTING_RULES}


def simplify(
    expression: Expr, rules: tuple[Rule, ...] = RULES, defines: Symbol | None = None
) -> tuple[Step, ...]:
    """Return the forms of ``expression`` from the one as written, one for every rule that changed it.

    A canonical rule may not cost operations, the others must save some. ``defines`` is the symbol that
    the expression is the definition of; no rule may bring it in.
    """
    named = next((name for name, known in _SETS.items() if known is rules), None)
    if named is None:
        return _simplified(expression, rules, defines)
    return tuple(map(Step._make, simplified(expression, named, defines)))


@Memo
def simplified(expression: Expr, rules: str, defines: Symbol | None) -> tuple[tuple[str, Expr, int], ...]:
    """Return the steps of ``simplify``, by the name of the rules."""
    return _simplified(expression, _SETS[rules], defines)


def _simplified(expression: Expr, rules: tuple[Rule, ...], defines: Symbol | None) -> tuple[Step, ...]:
    steps = [Step("as written", expression, operations(expression))]
    for rule in rules:
        before = steps[-1]
        after = rule.apply(before.expression)
        count = operations(after)
        if rule.canonical:
            better = count <= before.operations and _differs(after, before.expression)
        else:
            better = count < before.operations
        circular = defines is not None and defines in after.free_symbols
        if better and not circular:
            steps.append(Step(rule.name, after, count))
    return tuple(steps)


def _differs(after: Expr, before: Expr) -> bool:
    """Return False for the same form and for one whose summands or factors only stand in another order."""
    if after.func is before.func and isinstance(after, Add | Mul):
        return Counter(after.args) != Counter(part.doit() for part in before.args)
    return bool(after != before)


@cache
def _in_no_order(expression: Basic) -> tuple[Hashable, Any]:
    """Return what a reader sees of a form but the order of summands, factors and arguments: head and parts."""
    kind, parts = expression.func, [_in_no_order(part) for part in expression.args]
    if not parts:
        return kind, expression
    if not isinstance(expression, Add | Mul | LatticeOp):
        return kind, tuple(parts)
    counts: Counter[tuple[Hashable, Any]] = Counter()
    for part in parts:
        counts.update(dict(part[1]) if part[0] is kind and isinstance(part[1], frozenset) else [part])
    return kind, frozenset(counts.items())


def spelled_out(terms: TermSet, expression: Expr, fixed: Mapping[str, int]) -> Expr:
    """Return an expression as written, with local sizes spelled out and the implementation's fixed values put in."""
    return in_place(expression, _spelled(terms, len(terms.terms), frozenset(fixed.items())))


@cache
def _spelled(terms: TermSet, _: int, fixed: frozenset[tuple[str, int]]) -> Mapping[Symbol, Expr]:
    """Return the values that ``spelled_out`` puts in for the symbols of so many terms."""
    values: dict[Symbol, Expr] = {symbol(letter): Integer(value) for letter, value in fixed}
    for term in terms.terms.values():
        value = term.expression if values.keys().isdisjoint(term.symbols) else term.expression.xreplace(values)
        if term.owner == "local" or (fixed and value.is_Integer):
            values[term.symbol] = value
    return values


def derivation(terms: TermSet, name: str, fixed: Mapping[str, int]) -> tuple[Step, ...]:
    """Derive a term for people: as written, then one form for every rule that changes more than an order somewhere.

    A published term stays as it is printed.
    """
    return _derivation(terms, name, frozenset(fixed.items()))


@cache
def _derivation(terms: TermSet, name: str, fixed: frozenset[tuple[str, int]]) -> tuple[Step, ...]:
    rules = () if terms[name].owner == terms.name else RULES
    return _shown(spelled_out(terms, terms[name].expression, dict(fixed)), rules, terms[name].symbol)


@cache
def _shown(written: Expr, rules: tuple[Rule, ...], defines: Symbol) -> tuple[Step, ...]:
    """Return the steps that a reader sees as steps; sets of terms share most of their formulas."""
    first, *others = simplify(written, rules, defines)
    shown = [first]
    for step in others:
        if _in_no_order(step.expression) != _in_no_order(shown[-1].expression):
            shown.append(step)
    return tuple(shown)


@cache
def computed(terms: TermSet, name: str) -> Expr:
    """Return the form of a term that is compiled: simplified over local sizes, so that it stays in integers."""
    return simplify(terms[name].expression, COMPUTING_RULES)[-1].expression
