"""Pictures: panels that draw themselves, and tables with the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Panel:
    """One plot, as wide as a column.

    ``draw`` puts it into a (sub)figure of matplotlib; ``height`` is in inches. ``alt`` says in a sentence what it
    shows.
    """

    draw: Callable[[Any], None]
    height: float
    alt: str


@dataclass(frozen=True)
class Table:
    """The numbers of a plot, as text."""

    caption: str
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A title and a line below it, panels one below the other, and their numbers as tables."""

    title: str
    subtitle: str
    panels: tuple[Panel, ...]
    tables: tuple[Table, ...] = ()

    def __repr__(self) -> str:
        """Return the title; a notebook shows the drawing."""
        return f"<Picture: {self.title}>"

    def _repr_svg_(self) -> str:
        """Return the drawing for a notebook."""
        from shardmath.plots.files import drawn

        return drawn(self, "svg").decode()
