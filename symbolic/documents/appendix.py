"""Data for the LaTeX appendix: the parts of it put together."""

from __future__ import annotations

from typing import Any

from .comparison import comparison
from .example import example
from .notation import notation, sharding
from .tensors import components
from .totals import bibliography, totals
from .work import work


def appendix() -> dict[str, Any]:
    """Prepare the data of ``appendix.tex.jinja``."""
    return {
        **notation(), **sharding(), **components(), **totals(), **work(), **example(), **comparison(), **bibliography(),
    }
