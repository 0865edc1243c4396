"""Pictures: panels that draw themselves, tables with the same numbers, and files of both: PNG, SVG and HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from shardmath.errors import InputError, nearest_names
from shardmath.files.writing import whole_file
from shardmath.plots.style import BLACK, COLUMN, INK, SMALL, STYLE
from shardmath.reports.policy import with_policy


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
        return drawn(self, "svg").decode()


_SHEET = re.compile(r"\s*<style[^>]*>(.*?)</style>", re.DOTALL)
_STYLE = re.compile(r'\sstyle="([^"]*)"')


def in_one_sheet(drawings: Sequence[str]) -> tuple[list[str], str]:
    """Return SVG texts with a class in the place of every style, and the style sheet of these classes.

    The style sheets of the drawings come first, for what is in a drawing: a class overrules them as a style did.
    """
    rules: dict[str, None] = {}
    classes: dict[str, str] = {}

    def named(style: re.Match[str]) -> str:
        return f' class="{classes.setdefault(style[1], f"drawn-{len(classes)}")}"'

    sheets = []
    for drawing in drawings:
        rules |= dict.fromkeys(f"svg {rule.strip()}" for rule in _SHEET.findall(drawing))
        sheets.append(_STYLE.sub(named, _SHEET.sub("", drawing)))
    return sheets, "\n".join([*rules, *(f".{name} {{ {style} }}" for style, name in classes.items())])


#: Formats that can be written, by the end of the file's name.
FORMATS = ("png", "svg", "html")
#: Dots per inch of PNG.
_DPI = 200
#: Letters of a line of the title that a column has room for, and the inches of one line.
_LETTERS, _LINE = 64, 0.13
#: Inches above the title.
_ABOVE = 0.06
#: An option with the blank before its value, and a blank at which no line is broken.
_VALUED = re.compile(r"(--[a-z0-9-]+(?= [^\s-])|\b(?:[A-Z]{2,3}|mbs)(?= \d)) ")
_FIXED = "\N{NO-BREAK SPACE}"
#: Steps of the grid that positions are rounded to, in a figure's height or width.
_GRID = 2**20
#: A name that matplotlib makes of what it names.
_DIGEST = re.compile(r'(?<=[#"])([a-zA-Z])[0-9a-f]{10}(?![0-9a-zA-Z])')
#: References to elements of an SVG, and their names.
_NAMED = re.compile(r'(\bid="|href="#|url\(#)')


def refuse_unplottable(path: str | None) -> None:
    """Raise InputError unless ``path`` ends like a format that can be written, and there is a library for it.

    Nothing is asked of None, which stands for no picture.
    """
    if path is None:
        return
    suffix = Path(path).suffix.removeprefix(".")
    if suffix not in FORMATS:
        rule = f"must end with {', '.join(f'.{name}' for name in FORMATS[:-1])} or .{FORMATS[-1]}"
        raise InputError("plot", path, rule, nearest_names(suffix, FORMATS))
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("plot", path, "needs matplotlib: pip install 'shardmath[plots]'") from None


def write_picture(picture: Picture, path: str) -> None:
    """Write a picture in the format that the end of ``path`` names. SVG and HTML are the same on every run.

    Raises InputError for another end, and where no file can be written.
    """
    refuse_unplottable(path)
    suffix = Path(path).suffix.removeprefix(".")
    content = _page(picture).encode() if suffix == "html" else drawn(picture, suffix)
    file: Any
    with whole_file("plot", path, "wb") as file:
        file.write(content)


def svg_of(figure: Any) -> str:
    """Return the text of a figure, without trailing blanks and without a date. Called with ``STYLE`` set.

    Names that matplotlib makes of sizes become numbers: the last digits of a size may be others on another run.
    """
    _settle(figure)
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    places: dict[str, int] = {}
    numbered = _DIGEST.sub(lambda name: f"{name[1]}{places.setdefault(name[0], len(places))}", text.getvalue())
    return "\n".join(line.rstrip() for line in numbered.splitlines()) + "\n"


def _settle(figure: Any) -> None:
    """Leave everything where the layout puts it, on a grid of a millionth: the solver's last digits differ by run."""
    figure.savefig(StringIO(), format="svg")  # lays it out, by the sizes that letters have there
    figure.set_layout_engine("none")
    for part in figure.subfigs:
        box = part.bbox_relative
        box.p0, box.p1 = (_on_grid(corner) for corner in (box.p0, box.p1))
    for axes in figure.axes:
        axes.set_position(_on_grid(axes.get_position(original=True).bounds))


def _on_grid(shares: Iterable[float]) -> list[float]:
    return [round(share * _GRID) / _GRID for share in shares]


def in_black(svg: str) -> str:
    """Return the text of a figure with its ink in black, for paper."""
    return svg.replace(INK, BLACK)


def drawn(picture: Picture, suffix: str) -> bytes:
    """Return all panels in one figure, one below the other, under the title, as ``svg`` or ``png``."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    title = [line for text in (picture.title, picture.subtitle) for line in _lines(_printable(text))]
    heights = [_LINE * len(title) + _ABOVE, *(panel.height for panel in picture.panels)]
    with rc_context(STYLE):
        figure = Figure(figsize=(COLUMN, sum(heights)), layout="constrained")
        rows: Any = figure.subfigures(len(heights), 1, height_ratios=heights, hspace=0)
        head, *parts = rows
        head.text(0.5, 1 - _ABOVE / heights[0], "\n".join(title), ha="center", va="top", fontsize=SMALL,
                  linespacing=1.3)
        for panel, part in zip(picture.panels, parts, strict=True):
            panel.draw(part)
        if suffix == "svg":
            return in_black(svg_of(figure)).encode()
        content = BytesIO()
        figure.savefig(content, format=suffix, metadata={"Software": None}, dpi=_DPI)
        return content.getvalue()


def _lines(text: str) -> list[str]:
    """Return lines of nearly the same length that a column has room for."""
    count = max(1, len(_broken(text, _LETTERS)))
    return next(lines for letters in range(max(1, len(text) // count), _LETTERS + 1)
                if len(lines := _broken(text, letters)) <= count)


def _broken(text: str, letters: int) -> list[str]:
    """Break a text between words; an option of the command line stays whole, and it and a degree with their values."""
    joined = _VALUED.sub(rf"\1{_FIXED}", text)
    return [line.replace(_FIXED, " ") for line in wrap(joined, letters, break_on_hyphens=False)]


def _printable(text: str) -> str:
    """Escape the line breaks and escape codes of a name."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _page(picture: Picture) -> str:
    """Return every panel by itself, so that a wide screen has them side by side, and all tables."""
    from shardmath.files.rendering import rendered

    panels, styles = in_one_sheet([_inline(panel, place) for place, panel in enumerate(picture.panels, 1)])
    return with_policy(rendered("plot.html", {"picture": picture, "panels": panels, "styles": styles},
                                header="Written by `shardmath`."))


def _inline(panel: Panel, place: int) -> str:
    """Return the SVG of a panel inside of a page: its ink is that of the page, its names are its own."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**STYLE, "savefig.transparent": True}):
        figure = Figure(figsize=(COLUMN, panel.height), layout="constrained")
        panel.draw(figure)
        text = svg_of(figure)
    text = _NAMED.sub(rf"\g<1>panel-{place}-", text[text.index("<svg"):]).replace(INK, "currentColor")
    return re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
