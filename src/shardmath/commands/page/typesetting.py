"""The formulas of an evaluator as MathML, and its JavaScript; each is derived once and kept for the next time."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from shardmath.compiler.evaluators import Evaluator
from shardmath.files.cached import cached_text, sources_digest
from shardmath.generated.definitions import PEAK_RANKS

if TYPE_CHECKING:
    from shardmath.symbolic.implementations import Implementation
    from shardmath.symbolic.terms import TermSet

#: Owners of terms that repeat those of any rank.
_COPIES = (*PEAK_RANKS, "model", "whole", "alone")


def formulas_of(evaluator: Evaluator) -> dict[str, dict[str, Any]]:
    """Symbol, form, used terms and sources of every term of any one rank, by name; the form is cut before its summands.

    Forms of memory are simplified, those of time as written. A term of several ranks has its symbol alone.
    """

    def derived() -> str:
        return json.dumps(_formulas(_chosen(evaluator)))

    formulas: dict[str, dict[str, Any]] = json.loads(_kept(evaluator, "formulas.json", derived))
    return formulas


def script_of(evaluator: Evaluator, with_rows: bool = False) -> str:
    """Return the JavaScript of an evaluator, with single rows where its layers are dense or these are asked for."""
    if with_rows and evaluator.choices["layers"] != "dense":
        return _kept(evaluator, "rows.js", lambda: _with_rows(_chosen(evaluator)))

    def derived() -> str:
        from shardmath.symbolic.plain import derive_script

        return derive_script(_chosen(evaluator))

    return _kept(evaluator, "js", derived)


def _with_rows(chosen: Implementation) -> str:
    from shardmath.files.rendering import rendered
    from shardmath.symbolic.accounts import build
    from shardmath.symbolic.accounts.row_sizes import row_sizes
    from shardmath.symbolic.documents.evaluator import script
    from shardmath.symbolic.parallel.legality import rules_for
    from shardmath.symbolic.timing import build_times, is_timed

    times = build_times(chosen) if is_timed(chosen) else None
    title = f"Sharded training: {chosen.title}"
    data = script(chosen.name, title, build(chosen), rules_for(chosen), times, row_sizes(chosen))
    return rendered("evaluator.js", data)


def letters_of(names: Collection[str]) -> dict[str, str]:
    """Return the letters of parameters in MathML, by name."""
    from shardmath.symbolic.parameters import BY_NAME
    from shardmath.symbolic.printers.mathml import MathmlPrinter

    return {name: MathmlPrinter().doprint(BY_NAME[name].symbol) for name in names if name in BY_NAME}


def source_data() -> dict[str, dict[str, Any]]:
    """Return the sources of rows by key, with their entries in BibTeX."""
    from shardmath.files.rendering import rendered
    from shardmath.symbolic.documents.bibtex import bibtex
    from shardmath.symbolic.sources import SOURCES

    return {
        item.key: {"title": item.title, "authors": item.authors, "year": item.year, "where": item.where,
                   "url": item.url, "bibtex": _entry(rendered("appendix_exported.bib", bibtex([item.key])))}
        for item in SOURCES
    }


def _entry(text: str) -> str:
    return text[text.index("@"):].strip()


def _formulas(chosen: Implementation) -> dict[str, dict[str, Any]]:
    from shardmath.symbolic.accounts import build
    from shardmath.symbolic.parallel.legality import fixed_values
    from shardmath.symbolic.simplify import derivation
    from shardmath.symbolic.timing import build_times, is_timed

    memory, fixed = build(chosen), fixed_values(chosen)
    typeset = dict(_typeset(memory, lambda name: derivation(memory, name, fixed)[-1].expression))
    if is_timed(chosen):
        times = build_times(chosen)
        typeset |= {name: item for name, item in _typeset(times, lambda name: times[name].expression)
                    if name not in memory}
    return typeset


def _typeset(terms: TermSet, form_of: Any) -> Any:
    """Yield the terms of any one rank with their data."""
    from shardmath.symbolic.printers.mathml import MathmlPrinter

    printer = MathmlPrinter(terms.terms.values())
    for name, term in terms.terms.items():
        if term.owner in _COPIES:
            continue
        form = form_of(name)
        uses = [terms.by_symbol[symbol] for symbol in form.free_symbols & terms.by_symbol.keys()]
        of_one_rank = not any(other.owner in _COPIES for other in uses)  # else as the peak over all ranks
        yield name, {
            "symbol": printer.doprint(term.symbol), "form": printer.pieces(form) if of_one_rank else [],
            "uses": sorted(other.name for other in uses) if of_one_rank else [],
            "sources": sorted({row.tensor.source for row in term.rows}),
        }


def _chosen(evaluator: Evaluator) -> Implementation:
    from shardmath.symbolic.implementations import IMPLEMENTATIONS

    return IMPLEMENTATIONS[evaluator.implementation].with_choices(**evaluator.choices)


def _kept(evaluator: Evaluator, ending: str, derived: Any) -> str:
    return cached_text(f"scripts/{sources_digest()[:16]}", f"{evaluator.name}.{ending}", derived)
