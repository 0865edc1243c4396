"""An inverted formula for people: the last value that fits, of coefficients in letters, and what their terms mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sympy import Expr, Integer, Rational, Symbol, sqrt
from sympy.logic.boolalg import Boolean

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.differences import number
from shardmath.compiler.expressions.graph import Node
from shardmath.compiler.inverses.laurent import NoClosedFormError

from ..algebra.nodes import OPERATIONS
from ..functions import CeilDiv, FloorDiv
from ..parameters import BY_NAME
from ..simplify import simplify
from ..terms import term_symbol
from ..verdict import VERDICTS, M, needed_memory

#: Names of a polynomial's coefficients, by exponent.
NAMES = {-1: "shared", 0: "fixed", 1: "slope", 2: "bend"}


@dataclass(frozen=True)
class Inverted:
    """A solved formula: ``symbol`` equals ``answer``; ``coefficients`` are its parts, ``uses`` the terms in them."""

    symbol: Symbol
    answer: Expr
    coefficients: Mapping[Symbol, Expr]
    uses: Mapping[Symbol, Expr]


def inverted(
    symbol: str, coefficients: Mapping[int, Node], names: Mapping[Node, str], share: Rational | None, *, largest: bool,
) -> Inverted:
    """Solve ``polynomial <= share * memory`` for the parameter ``symbol``, in letters.

    ``names`` are those of terms; without a ``share`` the limit is that of the first verdict. The memory itself may be
    asked for. Raises NoClosedFormError for a polynomial that is neither linear nor quadratic in the symbol or its
    inverse.
    """
    reader = _Reader(names)
    counts = {Symbol(NAMES[exponent]): reader.read(node) for exponent, node in sorted(coefficients.items())}
    unknown = BY_NAME[symbol].symbol
    if unknown == M:
        answer = _memory(Symbol(NAMES[0]), share)
    else:
        limit = VERDICTS[0].condition.rhs if share is None else share * M
        answer = solved({exponent: Symbol(NAMES[exponent]) for exponent in coefficients}, limit, largest=largest)
    return Inverted(unknown, answer, counts, reader.uses(counts.values()))


def _memory(peak: Expr, share: Rational | None) -> Expr:
    """Return the memory that a peak needs."""
    if share is None:
        return needed_memory(term_symbol("process.peak"))
    over, under = share.as_numer_denom()
    return CeilDiv(under * peak, over)


def solved(counts: Mapping[int, Symbol], limit: Expr, *, largest: bool) -> Expr:
    """Return the last integer with the polynomial at most ``limit``. Raises NoClosedFormError for other exponents."""
    least, most = min(counts), max(counts)
    a, b, c = (counts.get(exponent, Integer(0)) for exponent in (1, 0, -1))
    if (least, most) in ((1, 1), (0, 1)):
        return FloorDiv(limit - b, a)
    if (least, most) in ((-1, -1), (-1, 0)) and not largest:
        return CeilDiv(c, limit - b)
    if most == 2 and least >= 0:
        a, b, c = (counts.get(exponent, Integer(0)) for exponent in (2, 1, 0))
        return FloorDiv(sqrt(b**2 + 4 * a * (limit - c)) - b, 2 * a)
    if (least, most) == (-1, 1):
        root = sqrt((limit - b)**2 - 4 * a * c)
        return FloorDiv(limit - b + root, 2 * a) if largest else CeilDiv(limit - b - root, 2 * a)
    raise NoClosedFormError(f"exponents {least} to {most}")


class _Reader:
    """Turns nodes into expressions of parameters and terms."""

    def __init__(self, names: Mapping[Node, str]) -> None:
        self._terms = {term_symbol(name): node for node, name in names.items()}
        self._known: dict[Node, Expr | Boolean] = {node: term_symbol(name) for node, name in names.items()}

    def read(self, node: Node) -> Expr:
        """Return a number in letters, in its simplest form."""
        return simplify(self._read(node))[-1].expression

    def uses(self, expressions: Iterable[Expr]) -> dict[Symbol, Expr]:
        """Return the definitions of the terms in ``expressions``."""
        used = set().union(*(expression.free_symbols for expression in expressions)) & self._terms.keys()
        return {
            symbol: simplify(self._made(self._terms[symbol]), defines=symbol)[-1].expression
            for symbol in sorted(used, key=str)
        }

    def _read(self, node: Node) -> Expr | Boolean:
        expression = self._known.get(node)
        if expression is None:
            expression = self._known[node] = self._made(node)
        return expression

    def _made(self, node: Node) -> Expr | Boolean:
        if node.op == ops.NUMBER:
            value = number(node)
            return Rational(value.numerator, value.denominator)
        if node.op == ops.NAME:
            return BY_NAME[str(node.value)].symbol
        return OPERATIONS[node.op](*map(self._read, node.args))
