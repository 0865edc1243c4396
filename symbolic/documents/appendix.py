"""Data for the LaTeX appendix: the parts of it put together."""

from __future__ import annotations

from typing import Any

from .comparison import comparison
from .example import example
from .notation import notation, sharding
from .scope import EVERYTHING, Scope
from .tensors import components
from .totals import bibliography, totals
from .work import work


def appendix() -> dict[str, Any]:
    """Prepare the data of ``appendix.tex.jinja``."""
    return {"labels": "sec", **ledger(EVERYTHING), **example(), **comparison(), **bibliography()}


def ledger(scope: Scope) -> dict[str, Any]:
    """Prepare all sections that follow from the ledger alone: what is not an example and no comparison."""
    return {
        "whole": scope.whole, **notation(scope), **sharding(scope), **components(scope), **totals(scope), **work(scope),
    }
