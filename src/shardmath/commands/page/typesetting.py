"""The formulas of an evaluator as MathML, and its JavaScript; each is derived once and kept for the next time."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from shardmath.compiler.evaluators import Evaluator, in_ledger
from shardmath.files.cached import cached_text, sources_digest


def formulas_of(evaluator: Evaluator) -> dict[str, dict[str, Any]]:
    """Return symbol, form, used terms and sources of every term of any one rank, by name."""
    def derived() -> str:
        from shardmath.symbolic.plain import derive_formulas

        return derive_formulas(in_ledger(evaluator.implementation, evaluator.choices))

    formulas: dict[str, dict[str, Any]] = json.loads(_kept(evaluator, "formulas.json", derived))
    return formulas


def script_of(evaluator: Evaluator, with_rows: bool = False) -> str:
    """Return the JavaScript of an evaluator, with single rows where its layers are dense or these are asked for."""
    more = with_rows and evaluator.choices["layers"] != "dense"

    def derived() -> str:
        from shardmath.symbolic.plain import derive_script

        return derive_script(in_ledger(evaluator.implementation, evaluator.choices), with_rows=more)

    return _kept(evaluator, "rows.js" if more else "js", derived)


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


def _kept(evaluator: Evaluator, ending: str, derived: Callable[[], str]) -> str:
    return cached_text(f"scripts/{sources_digest()[:16]}", f"{evaluator.name}.{ending}", derived)
