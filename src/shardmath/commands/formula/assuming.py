"""Assumptions as a person types them: ``sequence_parallel, recompute=none, pipeline_parallel > 1``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardmath.compiler.expressions.graph import Graph
from shardmath.compiler.expressions.source import FormulaError, parse
from shardmath.configuration.settings import WORDS
from shardmath.errors import InputError, nearest_names
from shardmath.generated.definitions import DEFAULTS, PARAMETERS
from shardmath.input.parameters import checked
from shardmath.input.quantities import separated

if TYPE_CHECKING:
    from sympy import Expr, Symbol
    from sympy.logic.boolalg import Boolean

    from shardmath.symbolic.algebra.assumed import Assumed
    from shardmath.symbolic.terms import TermSet

_NAME = re.compile(r"(not\s+)?([^\W\d]\w*)")
_WORD = re.compile(rf"({'|'.join(WORDS)})\s*={{1,2}}\s*(\S+)")
_NUMBER = re.compile(r"([^\W\d]\w*)\s*={1,2}\s*(-?\d+)")
_EQUALS = re.compile(r"(?<![<>=!])=(?!=)")
#: Grammar of assumptions, for messages.
GRAMMAR = ("a switch (sequence_parallel, not tied_embeddings), name = value, recompute = none, a condition (t <= k),"
           " or usual")
#: The assumption that parameters which few people set have their defaults, but for sizes of models and machines.
USUAL = "usual"


@dataclass
class Clauses:
    """Assumptions that were read: values by symbol, conditions, and the texts in the order in which they came."""

    values: dict[Symbol, Expr] = field(default_factory=dict)
    conditions: list[Boolean] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def symbols_by_name() -> dict[str, Symbol]:
    """Return every symbol by long name, letter, letter as it is printed, and abbreviation, also in small letters."""
    from shardmath.symbolic.parameters import PARAMETERS as DEFINED
    from shardmath.symbolic.printers.text import letter

    names: dict[str, Symbol] = {}
    for parameter in DEFINED:
        for name in (parameter.name, parameter.letter, letter(parameter.symbol), parameter.short):
            if name:
                names.setdefault(name, parameter.symbol)
    for parameter in DEFINED:
        if parameter.short:
            names.setdefault(parameter.short.lower(), parameter.symbol)
    return names


def read_clauses(assume: str | Sequence[str]) -> Clauses:
    """Read assumptions that are separated by commas.

    Raises InputError for one that cannot be clauses, an unknown name and a value that is not legal.
    """
    from sympy import sympify

    clauses = Clauses()
    known = symbols_by_name()
    texts = [assume] if isinstance(assume, str) else assume
    for text in (clause for whole in texts for clause in separated("assume", whole)):
        clauses.texts.append(text)
        if text == USUAL:
            continue
        if (switch := _NAME.fullmatch(text)) is not None:
            _set(clauses, text, _switch(text, switch[2], known), int(not switch[1]))
        elif (word := _WORD.fullmatch(text)) is not None:
            for name, value in WORDS[word[1]](word[2]).items():
                _set(clauses, text, known[name], value)
        elif (number := _NUMBER.fullmatch(text)) is not None:
            _set(clauses, text, _symbol(text, number[1], known), int(number[2]))
        else:
            _add(clauses, text, known)
    if USUAL in clauses.texts:
        for name, value in DEFAULTS.items():
            _, _, *limits, kind, _ = PARAMETERS[name]
            if kind in ("training", "layout") or (kind == "model" and limits == [0, 1]):
                clauses.values.setdefault(known[name], sympify(value))
    return clauses


def assuming(terms: TermSet, clauses: Clauses, rules: Sequence[Boolean]) -> Assumed:
    """Return the formulas of ``terms`` where the assumptions hold.

    Raises InputError where no legal configuration meets them.
    """
    from shardmath.symbolic.algebra.assumed import assumed
    from shardmath.symbolic.algebra.assumptions import ContradictionError
    from shardmath.symbolic.printers.text import LinePrinter

    try:
        return assumed(terms, clauses.values, clauses.conditions, rules)
    except ContradictionError as error:
        rule = f"must be met by some legal configuration: {LinePrinter().doprint(error.condition)} cannot hold"
        raise InputError("assume", ", ".join(clauses.texts), rule) from None


def _switch(text: str, name: str, known: Mapping[str, Symbol]) -> Symbol:
    """Return the symbol of a switch. Raises InputError for a name that is none."""
    symbol = _symbol(text, name, known)
    if PARAMETERS[_long_name(symbol)][2:4] != (0, 1):
        raise InputError("assume", text, f"must be a condition: {name} is no switch", f"{name} >= 2")
    return symbol


def _add(clauses: Clauses, text: str, known: Mapping[str, Symbol]) -> None:
    from sympy import Eq
    from sympy.logic.boolalg import Boolean, BooleanAtom

    from shardmath.symbolic.algebra.nodes import read

    graph, used = Graph(), dict[str, Any]()

    def resolve(name: str) -> Any:
        used[name] = known[name]
        return graph.name(name)

    try:
        condition = read(parse(_EQUALS.sub("==", text), graph, resolve), used)
    except FormulaError as error:
        if error.rule == "must be a known name":
            _symbol(text, error.part, known)
        raise InputError("assume", text, f"must be {GRAMMAR}: {error}") from None
    sides = condition.args
    if isinstance(condition, Eq):
        for name, value in (sides, sides[::-1]):
            if name.is_Symbol and name not in value.free_symbols:
                return _set(clauses, text, name, value)
    if isinstance(condition, BooleanAtom) or condition.is_Symbol or not isinstance(condition, Boolean):
        raise InputError("assume", text, f"must be {GRAMMAR}")
    clauses.conditions.append(condition)
    return None


def _set(clauses: Clauses, text: str, name: Symbol, value: Expr | int) -> None:
    from sympy import sympify

    value = sympify(value)
    if value.is_Integer:
        checked(_long_name(name), int(value))
    if clauses.values.get(name, value) != value:
        raise InputError("assume", text, f"must agree with the assumption that it is {clauses.values[name]}")
    clauses.values[name] = value


def _symbol(text: str, name: str, known: Mapping[str, Symbol]) -> Symbol:
    if name not in known:
        raise InputError("assume", text, f"must be over symbols of the formulas: {name} is none",
                         nearest_names(name, known))
    return known[name]


def _long_name(symbol: Symbol) -> str:
    from shardmath.symbolic.parameters import BY_LETTER

    return BY_LETTER[str(symbol)].name
