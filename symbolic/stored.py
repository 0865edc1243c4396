"""Results of functions of expressions as text and back, so that a small change lets few of them be computed again.

A result depends on its arguments, on the modules that compute it, on SymPy and on Python. The key of a text names all
of these but the arguments, its seal says that it is whole, and any other text is as good as none. Nodes are rebuilt
without evaluation; a result that would not come back as it was is not kept.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from sympy import Add, And, Basic, Eq, Ge, Gt, Le, Lt, Mul, Ne, Not, Or, Piecewise, Pow, Rational, Symbol, false, true
from sympy.functions.elementary.piecewise import ExprCondPair

from .functions import CeilDiv, Divides, FloorDiv, Iverson, LeastCommonMultiple, Max, Min
from .memo import Memo
from .parameters import BY_LETTER
from .simplify import simplified
from .terms import term_symbol

#: The functions whose results are kept, and the modules that compute them.
FUNCTIONS: tuple[Memo[Any], ...] = (simplified,)
MODULES = ("conditions", "extremes", "factoring", "functions", "memo", "monomials", "parameters", "polynomials",
           "run_out", "simplify", "splits", "stored", "terms", "workspaces")

Functions: TypeAlias = tuple[Memo[Any], ...]
_Row: TypeAlias = list[Any]
_EVALUATED = (And, Not, Or)
_AS_THEY_ARE = (ExprCondPair, Max, Min)
_UNEVALUATED = (Add, CeilDiv, Divides, Eq, FloorDiv, Ge, Gt, Iverson, Le, LeastCommonMultiple, Lt, Mul, Ne, Piecewise,
                Pow)
_KINDS: dict[str, Callable[..., Basic]] = {
    **{kind.__name__: kind for kind in _EVALUATED},
    **{kind.__name__: lambda *args, kind=kind: Basic.__new__(kind, *args) for kind in _AS_THEY_ARE},
    **{kind.__name__: lambda *args, kind=kind: kind(*args, evaluate=False) for kind in _UNEVALUATED},
    "letter": lambda text: BY_LETTER[text].symbol, "term": term_symbol, "number": Rational,
    "truth": lambda text: true if text == "True" else false,
}


def restore(text: str, functions: Functions = FUNCTIONS) -> None:
    """Give functions the results in a text that ``stored`` wrote, and forget what they were asked for.

    A text that is not whole, or that other modules or versions made, gives none.
    """
    seal, _, content = text.partition("\n")
    rows, results = json.loads(content) if seal == _seal(content) else ([], [[] for _ in functions])
    nodes: list[Basic] = []
    for row in rows:
        nodes.append(_node(row, nodes))

    def read(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(read, value))
        return nodes[value] if isinstance(value, int) else value["number"] if isinstance(value, dict) else value

    for function, pairs in zip(functions, results, strict=True):
        function.asked.clear()
        for arguments, result in pairs:
            function.results.setdefault(read(arguments), read(result))


def stored(functions: Functions = FUNCTIONS) -> str:
    """Return the text of the results that functions were asked for since ``restore``."""
    table = _Table()
    results = [list(table.pairs(function)) for function in functions]
    content = json.dumps([table.rows, results], separators=(",", ":"))
    return f"{_seal(content)}\n{content}"


class _Table:
    """Nodes by number, arguments before what uses them."""

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self._numbers: dict[Basic, int] = {}
        self._nodes: list[Basic] = []

    def pairs(self, function: Memo[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield the arguments and the result of every call, as JSON has them, where all nodes can be rebuilt."""
        for arguments in function.asked:
            with suppress(_ForeignError):
                yield self._written(arguments), self._written(function.results[arguments])

    def _written(self, value: Any) -> Any:
        """Return an expression as the number of its node, and a number in an object of its own."""
        if isinstance(value, tuple):
            return [self._written(part) for part in value]
        if isinstance(value, Basic):
            return self._number(value)
        return {"number": value} if isinstance(value, int) else value

    def _number(self, node: Basic) -> int:
        if node not in self._numbers:
            row = [type(node).__name__, *map(self._number, node.args)] if node.args else _atom(node)
            rebuilt = _node(row, self._nodes) if row[0] in _KINDS else None
            if rebuilt != node or rebuilt.args != node.args:
                raise _ForeignError
            self._numbers[node] = len(self.rows)
            self.rows.append(row)
            self._nodes.append(rebuilt)
        return self._numbers[node]


class _ForeignError(Exception):
    """A node that would not come back as it was."""


def _node(row: _Row, nodes: Sequence[Basic]) -> Basic:
    """Rebuild the node of a row after those before it."""
    kind, *parts = row
    return _KINDS[kind](*(nodes[part] if isinstance(part, int) else part for part in parts))


def _atom(node: Basic) -> _Row:
    if isinstance(node, Symbol):
        return ["letter" if node.name in BY_LETTER and node == BY_LETTER[node.name].symbol else "term", node.name]
    return ["truth" if node in (true, false) else "number" if isinstance(node, Rational) else "other", str(node)]


def _seal(content: str) -> str:
    return hashlib.sha256(f"{_key()}\n{content}".encode()).hexdigest()


@cache
def _key() -> str:
    """Return the digest of all that a result depends on but its arguments."""
    sources = [(name, (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]
    return hashlib.sha256(repr((sys.version, version("sympy"), sources)).encode()).hexdigest()
