"""Terms as text for ``shardmath formula``: rows, forms, definitions, numbers of sources and counterparts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sympy import Add, Expr, Mul, Symbol

from shardmath.files.rendering import HEADER

from ..accounts import build
from ..exact import evaluate, number
from ..implementations import IMPLEMENTATIONS
from ..parallel.legality import fixed_values
from ..parameters import symbol
from ..printers.text import LinePrinter, letter
from ..published import Counterpart, Figure, PublishedSet, all_published
from ..published.beside import implementation_of
from ..published.sets import PLAIN
from ..simplify import Step, derivation, spelled_out
from ..terms import Term, TermSet, product, term_symbol
from ..timing import build_times, is_timed

_LINE = LinePrinter()


def records() -> str:
    """Return one line of JSON for each term: its name, the sets that have it so, and its record.

    A set is an implementation with its own kernels, or a publication.
    """
    sets: dict[tuple[str, str], list[str]] = {}
    for owner, name, record in _all_records():
        sets.setdefault((name, json.dumps(record, ensure_ascii=False)), []).append(owner)
    lines = (f"[{json.dumps(name)}, {json.dumps(owners)}, {record}]" for (name, record), owners in sets.items())
    return "\n".join((json.dumps(HEADER), *lines)) + "\n"


def _all_records() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for owner, implementation in IMPLEMENTATIONS.items():
        memory, fixed = build(implementation), fixed_values(implementation)
        for terms in (memory, *([build_times(implementation)] if is_timed(implementation) else [])):
            for name in terms.terms:
                if terms is memory or name not in memory:
                    yield owner, name, record_of(terms, name, fixed, defined={**memory.by_symbol, **terms.by_symbol})
    for item in all_published():
        for name in item.terms.terms:
            yield item.name, name, {**record_of(item.terms, name, {}), **of_source(item, name)}


def record_of(
    terms: TermSet, name: str, fixed: Mapping[str, int], steps: Sequence[Step] | None = None,
    spelled: Callable[[Expr], Expr] | None = None, defined: Mapping[Symbol, Term] | None = None,
) -> dict[str, Any]:
    """Return unit, meaning, rows, forms and the terms that these use, each with its letter, as plain data.

    ``steps`` are other forms of the term than its own, in which ``spelled`` writes the sizes of rows. ``defined`` are
    all terms that can be used, where ``terms`` has only those that it computes with.
    """
    term = terms[name]
    steps = derivation(terms, name, fixed) if steps is None else steps
    spelled = spelled or (lambda expression: spelled_out(terms, expression, fixed))
    defined = terms.by_symbol if defined is None else defined
    used = sorted(set().union(*(step.expression.free_symbols for step in steps)) & defined.keys(), key=str)
    return {
        "unit": term.unit, "meaning": term.meaning,
        "rows": [
            (f"{row.component.name}.{row.tensor.name}",
             " * ".join(dimension.name for dimension in row.tensor.shape) or "scalar", row.tensor.bytes,
             row.tensor.lifetime.value, row.tensor.source, row.tensor.meaning, _LINE.doprint(spelled(row.expression)))
            for row in term.rows
        ],
        "steps": [(step.rule, _LINE.doprint(step.expression), step.operations) for step in steps],
        "uses": [(letter(part), defined[part].name) for part in used],
    }


def of_source(item: PublishedSet, name: str) -> dict[str, Any]:
    """Return the source of a published set, the numbers that it prints for ``name``, and the ledger's counterparts."""
    return {
        "publication": item.source if item.terms[name] in item.own else "",
        "numbers": [_number(item, figure) for figure in item.figures if figure.term == name],
        "counterparts": [_counted(item, pair) for pair in item.correspondence if pair.term == name],
    }


def _number(item: PublishedSet, figure: Figure) -> dict[str, Any]:
    """Return values by letter, unit, number as printed, of the formula and of the ledger; exact numbers are text."""
    value = evaluate(item.terms.closure([figure.term]), figure.values)[figure.term]
    ours = next((value - difference for difference in _differences(item, figure)), None)
    return {
        "values": {letter(symbol(name)): str(size) for name, size in figure.values.items()},
        "unit": figure.unit, "printed": figure.printed, "formula": str(value / figure.size),
        "counted": None if ours is None else str(ours / figure.size), "where": figure.where, "remark": figure.remark,
    }


def _differences(item: PublishedSet, figure: Figure) -> Iterator[Expr]:
    """Yield the stated differences that the inputs of a figure suffice for."""
    known = {symbol(name): value for name, value in figure.values.items()}
    for pair in item.correspondence:
        if pair.term == figure.term and pair.difference is not None and pair.difference.free_symbols <= known.keys():
            yield number(pair.difference, known)


def _counted(item: PublishedSet, pair: Counterpart) -> dict[str, Any]:
    ours = Add(*map(term_symbol, pair.ledger))
    if pair.over:
        ours = Mul(ours, 1 / Add(*map(term_symbol, pair.over)))
    implementation = implementation_of(item, pair)
    chosen = ", ".join(f"{axis} {option}" for axis, option in pair.choices.items())
    return {
        "implementation": implementation.framework + (f" ({chosen})" if chosen else ""),
        "counted": _LINE.doprint(product(pair.scale, ours)), "meaning": pair.meaning,
        "assumed": {_LINE.doprint(symbol(name)): _LINE.doprint(value)
                    for name, value in pair.values.items() if PLAIN.get(name) != value},
        "difference": None if pair.difference is None else _LINE.doprint(pair.difference), "remark": pair.remark,
    }
