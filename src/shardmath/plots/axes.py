"""Logarithmic axes with numbers as people write them."""

from __future__ import annotations

from typing import Any

#: An axis over more than so many times its least number has only powers of ten, or some of its numbers.
_DECADES, _WIDE = 300, 20


def plain_logarithmic(axis: Any, low: float, high: float) -> None:
    """Give a logarithmic axis from ``low`` to ``high`` as many numbers as it has room for, without powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    steps = (1,) if high >= _DECADES * low else (1, 2, 5) if high >= _WIDE * low else (1, 1.5, 2, 3, 4, 6, 8)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.set_minor_formatter(NullFormatter())
