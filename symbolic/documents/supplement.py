"""Data for the LaTeX supplement, which has every tensor and every term: the parts of it put together."""

from __future__ import annotations

from typing import Any

from .changes import changes
from .comparison import comparison
from .example import example
from .notation import notation, sharding
from .planned import planned
from .scope import EVERYTHING, Scope
from .systems import systems
from .tensors import components
from .totals import bibliography, totals
from .work import work


def of_terms(scope: Scope = EVERYTHING) -> dict[str, Any]:
    """Prepare the sections that have the form of every term of memory."""
    return {**components(scope), **totals(scope)}


def of_work(scope: Scope = EVERYTHING) -> dict[str, Any]:
    """Prepare the other sections that follow from the ledger alone."""
    return {"whole": scope.whole, **notation(scope), **sharding(scope), **work(scope)}


def of_examples() -> dict[str, Any]:
    """Prepare the example, the comparison with published formulas, phases, a plan, and the bibliography."""
    return {"labels": "sec", **example(), **comparison(), **changes(), **planned(), **bibliography()}


#: Functions that prepare sections of ``supplement.tex.jinja``.
SUPPLEMENT = (of_terms, of_work, of_examples, systems)


def ledger(scope: Scope) -> dict[str, Any]:
    """Prepare all sections that follow from the ledger alone: what is not an example and no comparison."""
    return {**of_terms(scope), **of_work(scope)}
