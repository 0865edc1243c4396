"""A formula to compute with: the SymPy expression and what people do with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shardmath.commands.formula.assuming import symbols_by_name
from shardmath.commands.formula.calling import called
from shardmath.errors import InputError, nearest_names
from shardmath.input.parameters import checked, model_values
from shardmath.models import Model

if TYPE_CHECKING:
    from sympy import Expr, Symbol

    from shardmath.symbolic.algebra.assumed import Assumed
    from shardmath.symbolic.algebra.calculus import Piece

#: A longer rounding is not shown in a message.
_MOST_LETTERS = 60


class Symbolic:
    """The SymPy side of a formula: what ``formulas`` make of the term ``name``, in the unit of the term."""

    name: str
    _formulas: Assumed
    _form: Expr

    @cached_property
    def expr(self) -> Expr:
        """The SymPy expression: symbols, Max, Min, ceiling, floor, Mod and Piecewise, nothing of this project's."""
        from shardmath.symbolic.algebra.standard import standard

        return standard(self._form)

    def _sympy_(self) -> Expr:
        """Let SymPy's functions take the formula as its expression."""
        return self.expr

    def _repr_latex_(self) -> str:
        """Return the formula for a notebook."""
        return f"$\\displaystyle {self.latex()}$"

    def latex(self) -> str:
        r"""Return the formula in the letters of the appendix, as LaTeX.

        Example:
            >>> layer = shardmath.formula("korthikanti2022.layer_none")
            >>> print(layer.latex())
            s\,b\,h\,\left(34 + \frac{5\,s\,a}{h}\right)
        """
        from shardmath.symbolic.printers.latex import LatexPrinter

        return LatexPrinter(self._formulas.terms.terms.values()).doprint(self._form)

    @property
    def operations(self) -> int:
        """The additions, multiplications and calls of functions that it takes to compute ``expr``."""
        return int(self.expr.count_ops())

    @cached_property
    def symbols(self) -> Mapping[str, Symbol]:
        """The symbols of the formulas by long name and by letter; those of ``expr`` are among them."""
        from shardmath.symbolic.parameters import QUANTITIES

        published = {name: item.symbol for item in QUANTITIES for name in (item.name, item.letter)}
        return {**symbols_by_name(), **published, **{str(part): part for part in self.expr.free_symbols}}

    @cached_property
    def terms(self) -> Mapping[str, Expr]:
        """Contribution of each ledger row; a maximum that is not decided is one entry, by the name of its term."""
        from shardmath.symbolic.algebra.rows import rows_of
        from shardmath.symbolic.algebra.standard import standard
        from shardmath.symbolic.simplify import simplify

        rows = rows_of(self._formulas, self.name)
        return {row: standard(simplify(value)[-1].expression) for row, value in rows.items()}

    @cached_property
    def parts(self) -> Mapping[Symbol, Expr]:
        """The formula as named parts, in computing order: each is over parameters and parts before it, the last is all.

        Put into one another they equal the formula written out, which may be thousands of times as long.
        """
        from shardmath.symbolic.algebra.parts import parts_of
        from shardmath.symbolic.algebra.standard import standard

        parts = parts_of(self._formulas, self._formulas.terms[self.name])
        return {part: standard(value) for part, value in parts.items()}

    def subs(self, values: Mapping[str, Any] | Model | None = None, **named: Any) -> Expr:
        """Return the expression with values for symbols, by long name or letter; a model gives all of its sizes.

        Letters such as ``A`` and ``v`` get their values as soon as what they are made of has some. Raises InputError
        for an unknown name and for an integer that is not legal.

        Example:
            >>> layer = shardmath.formula("korthikanti2022.layer_none")
            >>> layer.subs(seq_length=8192, micro_batch_size=1, hidden_size=4096, num_attention_heads=32)
            11878268928
            >>> layer.subs(shardmath.load_model("llama-3.1-8b"))
            4096*b*s*(5*s/128 + 34)
        """
        from sympy import sympify

        chosen = {self.symbol(name): sympify(value)
                  for name, value in {**_named(values), **named}.items()}
        for name, value in chosen.items():
            _check(name, value)
        for part, definition in self._definitions.items():
            if part not in chosen and not (value := definition.subs(chosen)).free_symbols:
                chosen[part] = value
        return self.expr.subs(chosen)

    @cached_property
    def _definitions(self) -> Mapping[Symbol, Expr]:
        """The letters of the expression that are products and quotients of others, with these."""
        from shardmath.symbolic.algebra.standard import standard

        terms, put_in = self._formulas.terms.by_symbol, self._formulas.assumptions.put_in
        return {part: standard(put_in(terms[part].expression)).doit()
                for part in self.expr.free_symbols if part in self._formulas.kept and part in terms}

    def symbol(self, name: str | Symbol) -> Symbol:
        """Return a symbol by long name or letter. Raises InputError for an unknown one.

        Example:
            >>> layer = shardmath.formula("korthikanti2022.layer_none")
            >>> layer.symbol("hidden_size")
            h
        """
        text = str(name)
        if text not in self.symbols:
            raise InputError("symbol", text, "must be a symbol of the formulas", nearest_names(text, self.symbols))
        return self.symbols[text]

    def diff(self, symbol: str | Symbol) -> Expr:
        """Return the derivative: what is rounded moves like what is rounded, a maximum like its largest argument.

        Example:
            >>> layer = shardmath.formula("korthikanti2022.layer_none")
            >>> layer.diff("micro_batch_size")
            h*s*(5*a*s/h + 34)
        """
        from shardmath.symbolic.algebra.calculus import derivative

        return derivative(self.expr, self.symbol(symbol))

    def solve(self, symbol: str | Symbol, value: Any = "gpu_memory") -> tuple[Piece, ...]:
        """Return the values of ``symbol`` with which the formula equals ``value``, each with its condition.

        ``value`` is a number in the unit of the formula, an expression or the name of a symbol. Raises InputError
        where the symbol is rounded together with other letters, with the assumption that decides it. Where all values
        of a region do, the answer is the symbol itself with the condition of the region.

        Example:
            >>> layer = shardmath.formula("korthikanti2022.layer_none")
            >>> layer.solve("micro_batch_size", 80 * 2**30)
            (Piece(value=85899345920/(s*(5*a*s + 34*h)), condition=True),)
        """
        from sympy import Rational

        target = self.symbol(value) if isinstance(value, str) else value
        return self._zeros(self.expr - (Rational(target) if isinstance(target, float) else target), symbol)

    def crossover(self, other: Symbolic, symbol: str | Symbol) -> tuple[Piece, ...]:
        """Return the values of ``symbol`` at which two formulas are equal, each with its condition.

        Example:
            >>> layer = shardmath.formula("korthikanti2022.layer_none")
            >>> full = shardmath.formula("korthikanti2022.layer_full")
            >>> [piece.value for piece in layer.crossover(full, "seq_length")]
            [-32*h/(5*a)]
        """
        return self._zeros(self.expr - other.expr, symbol)

    def _zeros(self, expression: Expr, symbol: str | Symbol) -> tuple[Piece, ...]:
        from shardmath.symbolic.algebra.calculus import RoundedError, solutions

        try:
            return tuple(solutions(expression, self.symbol(symbol)))
        except RoundedError as error:
            rounding, own = str(error.rounding), self.symbol(symbol)
            letters = ", ".join(sorted(map(str, error.rounding.free_symbols - {own})))
            where = f", as in {rounding}" if len(rounding) <= _MOST_LETTERS else ""
            way = f"numbers for {letters}" if error.divisor is None else f'"divides({error.divisor}, {own})"'
            rule = f"must not be rounded together with other letters{where}; assume {way}"
            raise InputError("symbol", str(symbol), rule) from None

    def series(self, symbol: str | Symbol) -> Mapping[int, Expr]:
        """Return the coefficients of the powers of ``symbol``, the highest first; together they are the formula.

        Raises InputError where the formula is no sum of powers: assumptions decide maxima and roundings.

        Example:
            >>> layer = shardmath.formula("korthikanti2022.layer_none")
            >>> layer.series("seq_length")
            {2: 5*a*b, 1: 34*b*h}
        """
        from shardmath.symbolic.algebra.calculus import powers

        return self._powers(powers, symbol)

    def asymptotics(self, symbol: str | Symbol) -> Expr:
        """Return the power that the formula grows like when ``symbol`` is large, with its coefficient.

        Example:
            >>> layer = shardmath.formula("korthikanti2022.layer_none")
            >>> layer.asymptotics("seq_length")
            5*a*b*s**2
        """
        from shardmath.symbolic.algebra.calculus import growth

        counts = self._powers(growth, symbol)
        highest = max(counts)
        return counts[highest] * self.symbol(symbol)**highest

    def _powers(self, count: Callable[..., Mapping[int, Expr]], symbol: str | Symbol) -> Mapping[int, Expr]:
        try:
            return count(self.expr, self.symbol(symbol))
        except ValueError as error:
            rule = f"must be one that the formula is a sum of powers of: {error}"
            raise InputError("symbol", str(symbol), rule) from None

    def compare(self, other: Symbolic) -> Difference:
        """Return this formula minus another one, in letters and by ledger row.

        Example:
            >>> layer = shardmath.formula("korthikanti2022.layer_none")
            >>> layer.compare(shardmath.formula("korthikanti2022.layer_full")).expr
            5*a*b*s**2 + 32*b*h*s
        """
        from sympy import Integer, expand

        rows = {}
        for row in dict.fromkeys((*self.terms, *other.terms)):
            value = expand(self.terms.get(row, Integer(0)) - other.terms.get(row, Integer(0)))
            if value != 0:
                rows[row] = value.factor()
        return Difference(expand(self.expr - other.expr), rows)

    def lambdify(
        self, arguments: Sequence[str | Symbol] | None = None, modules: str = "numpy", *, in_parts: bool = False,
    ) -> Callable[..., Any]:
        """Return a function of numbers or arrays; its arguments are ``arguments``, or those of ``symbols`` in order.

        ``modules`` is ``numpy``, ``jax``, ``mpmath`` or another module that SymPy's ``lambdify`` knows. The function
        takes its arguments by place or by long name. mpmath is exact to its precision, the others are floats. With
        ``in_parts`` it computes ``parts`` one after another: quick for long formulas, such as the time of a step.
        Raises InputError for ``arguments`` without a symbol of the formula.

        Example:
            >>> layer = shardmath.formula("korthikanti2022.layer_none")
            >>> bytes_of = layer.lambdify(["seq_length", "micro_batch_size", "hidden_size", "num_attention_heads"])
            >>> bytes_of(8192, 1, 4096, 32)
            11878268928.0
        """
        parts = self.parts if in_parts else {self._formulas.terms[self.name].symbol: self.expr}
        free = set().union(*(value.free_symbols for value in parts.values())) - parts.keys()
        order = [self.symbol(name) for name in (arguments or sorted(map(str, free)))]
        if missing := free - set(order):
            raise InputError("arguments", [str(name) for name in order],
                             f"must have every symbol: {', '.join(sorted(map(str, missing)))} too")
        return called(order, list(parts.items()), modules)


@dataclass(frozen=True)
class Difference:
    """One formula minus another: ``expr`` in letters, ``terms`` by ledger row without those that are equal."""

    expr: Expr
    terms: Mapping[str, Expr]

    def _repr_latex_(self) -> str:
        """Return the difference for a notebook."""
        from sympy import latex

        return f"$\\displaystyle {latex(self.expr)}$"

    def __str__(self) -> str:
        """Return a line for the whole, and one for each row."""
        return "\n".join([str(self.expr), *(f"  {row}: {value}" for row, value in self.terms.items())])


def _named(values: Mapping[str, Any] | Model | None) -> Mapping[str, Any]:
    if values is None:
        return {}
    return model_values(values) if isinstance(values, Model) else {str(name): value for name, value in values.items()}


def _check(name: Symbol, value: Expr) -> None:
    """Refuse an integer that the parameter cannot have."""
    from shardmath.symbolic.parameters import BY_LETTER

    if value.is_Integer and str(name) in BY_LETTER:
        checked(BY_LETTER[str(name)].name, int(value))
