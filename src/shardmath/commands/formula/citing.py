"""BibTeX of a formula: the sources of every ledger row that it is made of, or the publication that has it."""

from __future__ import annotations

from collections.abc import Mapping

from shardmath import __version__
from shardmath.compiler.evaluators import counted
from shardmath.configuration.fields import FIRST
from shardmath.errors import InputError, nearest_names
from shardmath.files.rendering import rendered


def bibliography(term: str, implementation: str = FIRST, kernels: Mapping[str, str] | None = None) -> str:
    """Return BibTeX entries for the sources of ``term`` and of all terms that it uses.

    Raises InputError for an unknown term, implementation or kernel choice.
    """
    from shardmath.symbolic.documents.bibtex import bibtex

    keys = _keys(term, implementation, kernels or {})
    return rendered("appendix_exported.bib", bibtex(keys), f"shardmath {__version__}: sources of {term}")


def _keys(term: str, implementation: str, kernels: Mapping[str, str]) -> set[str]:
    from shardmath.symbolic.accounts import build
    from shardmath.symbolic.published import all_published
    from shardmath.symbolic.timing import build_all, is_timed

    for publication in all_published():
        if any(own.name == term for own in publication.own):
            return {publication.source}
    chosen = counted(implementation, kernels)
    terms = (build_all if is_timed(chosen) else build)(chosen)
    if term not in terms.terms:
        raise InputError("term", term, "must be a term", nearest_names(term, terms.terms))
    reached, left = {term}, [term]
    while left:
        used = terms[left.pop()].expression.free_symbols & terms.by_symbol.keys()
        names = {terms.by_symbol[symbol].name for symbol in used} - reached
        reached |= names
        left += names
    return {row.tensor.source for name in reached for row in terms[name].rows}
