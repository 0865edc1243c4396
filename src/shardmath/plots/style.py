"""The look of all pictures: a paper's column, colours for the colour-blind, marks, axes, short words and numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from shardmath.generated.definitions import ABSENT_DEGREES, ROLES, SHORT, VERDICTS

#: Inches of a column of a paper.
COLUMN = 3.4
#: The colour of text and lines; a page puts its own in its place, light or dark.
INK = "#010203"
#: A colour on which any of ours can be read, for text on a coloured ground.
BLACK = "#000000"
#: Points of what is smaller than the labels of axes.
SMALL = 6.5

#: Okabe and Ito's colours, which differ for all kinds of colour blindness.
_BLUE, _ORANGE, _GREEN, _RED, _SKY, _YELLOW, _PINK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#F0E442", "#CC79A7",
)
ROLE_COLOURS: Mapping[str, str] = dict(
    zip(ROLES, (_BLUE, _SKY, _GREEN, _ORANGE, _RED, _YELLOW, _PINK), strict=True)
)
_GROUNDS, _STRONG, _SIGNS, _MARKERS = ("#BFE3F7", "#F8E3AD", "#E3E3E3"), ("#1F86C7", _ORANGE, "#8A8A8A"), "✓?×", "o^x"
_NAMES = tuple(name for name, _ in VERDICTS)
#: By verdict: a light ground for text, a colour for points, a sign for text and a marker for points.
GROUNDS: Mapping[str, str] = dict(zip(_NAMES, _GROUNDS, strict=True))
STRONG: Mapping[str, str] = dict(zip(_NAMES, _STRONG, strict=True))
SIGNS: Mapping[str, str] = dict(zip(_NAMES, _SIGNS, strict=True))
VERDICT_MARKERS: Mapping[str, str] = dict(zip(_NAMES, _MARKERS, strict=True))
#: Markers that can be told apart without colour.
MARKERS = "os^Dv<>PX*"

#: Settings of matplotlib; SVG is the same on every run, with letters as outlines, which look alike everywhere.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "shardmath", "svg.fonttype": "path", "text.parse_math": False,
    "font.family": "DejaVu Sans", "font.size": 8, "axes.linewidth": 0.6, "axes.titlesize": 8,
    "legend.fontsize": SMALL, "legend.frameon": False,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.minor.width": 0.4, "ytick.minor.width": 0.4,
    "xtick.labelsize": 7, "ytick.labelsize": 7, "lines.linewidth": 0.9, "hatch.linewidth": 0.5,
    "axes.prop_cycle": f"cycler('color', {[_BLUE, _RED, _GREEN, _ORANGE, _PINK, _SKY, BLACK]})",
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "hatch.color"), INK,
    ),
}


#: An axis over more than so many times its least number has only powers of ten, or some of its numbers.
_DECADES, _WIDE = 300, 20


def plain_logarithmic(axis: Any, low: float, high: float) -> None:
    """Give a logarithmic axis from ``low`` to ``high`` as many numbers as it has room for, without powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    steps = (1,) if high >= _DECADES * low else (1, 2, 5) if high >= _WIDE * low else (1, 1.5, 2, 3, 4, 6, 8)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.set_minor_formatter(NullFormatter())


#: Sizes in the order in which people say them.
_SAID = ("tensor_parallel", *ABSENT_DEGREES, "context_parallel", "pipeline_parallel", "virtual_pipeline",
         "expert_parallel", "data_parallel", "micro_batch_size")


def short(layout: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Get the sizes as far as they are not 1, and what is recomputed, ``without`` some; ``DP`` if nothing is left."""
    parts = [f"{SHORT[name]} {layout[name]}" for name in _SAID
             if name not in without and layout.get(name, 1) != 1]
    if "recompute" not in without and layout.get("recompute", "none") != "none":
        parts.append(f"recompute {layout['recompute']}")
    return " ".join(parts) or "DP"


def three_digits(number: float) -> str:
    """Format a non-negative number with three digits, or all before its point; never a power of ten."""
    return f"{number:.{min(2, max(0, 3 - len(str(int(number)))))}f}"
