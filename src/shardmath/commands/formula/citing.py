"""BibTeX of a formula: the sources of every ledger row that it is made of, or the publication that has it."""

from __future__ import annotations

from collections.abc import Mapping

from shardmath import __version__
from shardmath.commands.formula.run import home_of
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
    from shardmath.symbolic.published import published_set

    home = home_of(term, implementation, tuple(sorted(kernels.items())))
    terms, publication = home.terms, published_set(home.name)
    if term not in terms:
        raise InputError("term", term, "must be a term", nearest_names(term, terms.terms))
    if publication is not None:
        return {publication.source}
    return {row.tensor.source for item in terms.closure((term,)) for row in item.rows}
