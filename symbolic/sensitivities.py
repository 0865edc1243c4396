"""Derivatives of terms by one symbol, as formulas: the chain rule over terms, on the branch that holds at a point.

A rounded value moves like its argument. Conditions, and which of several arguments is
the largest, are those of the point; a switch is a symbol like others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from sympy import Add, Dummy, Expr, Integer, Symbol, diff

from .exact import number
from .functions import CeilDiv, FloorDiv, Iverson, Max, Min, outermost
from .parameters import BY_LETTER, symbol
from .terms import TermSet


class Slopes:
    """Derivatives of ``terms`` by the parameter ``letter`` at ``values`` of all parameters, which are by letter."""

    def __init__(self, terms: TermSet, letter: str, values: Mapping[str, int]) -> None:
        self._terms, self._moved = terms, symbol(letter)
        self._values: dict[Symbol, Expr] = {symbol(name): Integer(value) for name, value in values.items()}
        self._found: dict[Symbol, Expr] = {}

    def of(self, name: str) -> Expr:
        """Return the derivative of a term, made of parameters and of terms that have a letter of their own.

        Raises ValueError where a parameter that the term needs has no value.
        """
        return self._written_out(self._of_symbol(self._terms[name].symbol))

    def value(self, expression: Expr) -> Expr:
        """Return the rational number that a derivative is at the point."""
        return number(expression, self._known)

    @cached_property
    def _known(self) -> dict[Symbol, Expr]:
        """The values of parameters and terms at the point."""
        known = dict(self._values)
        for term in self._terms.terms.values():
            if term.expression.free_symbols <= known.keys():
                known[term.symbol] = number(term.expression, known)
        return known

    def _of_symbol(self, name: Symbol) -> Expr:
        if name == self._moved:
            return Integer(1)
        term = self._terms.by_symbol.get(name)
        if term is None:
            return Integer(0)
        if name not in self._found:
            self._found[name] = self._of(term.expression)
        return self._found[name]

    def _of(self, expression: Expr) -> Expr:
        """Return the derivative of an expression: by every symbol and function in it, times the derivative of these."""
        inner = {node: Dummy() for node in outermost(expression)}
        plain = expression.xreplace(inner)
        back = {dummy: self._branch(node) for node, dummy in inner.items()}
        parts = [diff(plain, part) * self._of_symbol(part) for part in plain.free_symbols - back.keys()]
        parts += [diff(plain, dummy) * self._of_function(node) for node, dummy in inner.items()]
        return Add(*parts).xreplace(back)

    def _of_function(self, node: Expr) -> Expr:
        if isinstance(node, CeilDiv | FloorDiv):
            return self._of(node.args[0] / node.args[1])
        return self._of(self._chosen(node)) if isinstance(node, Max | Min) else Integer(0)

    def _branch(self, node: Expr) -> Expr:
        """Return a function as it is at the point: a condition decided, one of several arguments chosen."""
        if isinstance(node, Iverson):
            return number(node, self._known)
        return self._decided(self._chosen(node)) if isinstance(node, Max | Min) else node

    def _chosen(self, node: Expr) -> Expr:
        """Return the largest or smallest argument; of equal ones that which still is after a step upwards."""
        def order(part: Expr) -> tuple[Expr, Expr]:
            return number(part, self._known), self.value(self._of(part))

        return max(node.args, key=order) if isinstance(node, Max) else min(node.args, key=order)

    def _decided(self, expression: Expr) -> Expr:
        return expression.xreplace({node: self._branch(node) for node in outermost(expression)})

    def _written_out(self, expression: Expr) -> Expr:
        """With the formulas of terms that have no letter of their own."""
        terms = self._terms.by_symbol
        names = [name for name in expression.free_symbols if name in terms and str(name) not in BY_LETTER]
        if not names:
            return expression
        return self._written_out(expression.xreplace({name: self._decided(terms[name].expression) for name in names}))
