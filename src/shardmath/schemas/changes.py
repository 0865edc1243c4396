"""The documents of ``shardmath moves`` and ``fit``: what moves the peak, and what is the most that fits."""

from __future__ import annotations

from shardmath.schemas.parts import Cluster, Label, Model, Part
from shardmath.search.untried import Untried

#: An exact number: an integer, or a fraction as text, such as "1/3".
Exact = int | str


class Difference(Part):
    """The difference to the next legal value."""

    after: int
    """The other value."""
    bytes: int
    """Bytes that the peak grows by, or shrinks by where it is negative."""


class Sensitivity(Part):
    """How the peak moves with one symbol; exact numbers of bytes per unit as text, such as ``"1/3"``."""

    name: str
    """Parameter."""
    unit: str
    """Its unit."""
    value: int
    """Its value in the configuration."""
    derivative: str | None
    """Slope of the peak; null where it has none."""
    below: str | None
    """Slope below the value."""
    above: str | None
    """Slope above it."""
    gpus_fixed: str | None
    """Slope of a parallel size with the number of GPUs fixed."""
    elasticity: str
    """Change of the peak in percent for one percent of the symbol."""
    smaller: Difference | None
    """To the next smaller legal value."""
    larger: Difference | None
    """To the next larger legal value."""


class Replaced(Part):
    """One thing that changes."""

    name: str
    """Parameter, or ``recompute``."""
    before: Label
    """What it was."""
    after: Label
    """What it is."""


class Move(Part):
    """Changes that together give another legal configuration on the same GPUs with the same batch."""

    changes: list[Replaced]
    """What changes."""
    layout: dict[str, Label]
    """All sizes of the layout after them."""
    peak_bytes: int
    """Bytes of the peak after them."""
    change_bytes: int
    """What the peak grows by, or shrinks by where it is negative."""
    margin_bytes: int
    """Memory that they leave below what fits."""
    seconds: float | None
    """Time of a step; null where it is not known."""
    ratio: float | None
    """The time of a step over that of now; null where it is not known."""


class Moves(Part):
    """Sensitivities of the peak of a configuration, and the smallest changes that make it fit."""

    model: Model
    """Dimensions of the model."""
    cluster: Cluster
    """GPUs, servers and network."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    inputs: dict[str, int]
    """Every parameter by name."""
    recompute: str
    """Recompute mode."""
    rank: int
    """Pipeline rank that keeps most."""
    moment: str
    """Moment of a step at which it peaks."""
    peak_bytes: int
    """Bytes that it keeps then."""
    limit_bytes: int
    """Bytes that the peak must not exceed to fit."""
    share: str
    """The limit over the memory of the GPU, exact."""
    fits: bool
    """True if the configuration fits unchanged."""
    seconds: float | None
    """Time of a step; null where it is not known."""
    time_unknown: str
    """Why the time is not known; empty where it is."""
    sensitivities: list[Sensitivity]
    """How the peak moves with every symbol."""
    differences: list[Move]
    """Every change of one thing to its next legal values."""
    smallest: list[Move]
    """The smallest changes that make it fit."""
    gains: list[Move]
    """Where it fits: changes that use what is left to be faster."""
    least: Move
    """The change that leaves the least peak."""
    untried: list[Untried]
    """Layouts that were left out, with the option that tries them."""
    formulas: Slopes | None
    """The formulas behind one sensitivity; null where they were not asked for (``--formula``)."""


class Slope(Part):
    """Contribution of one line of an account to a sensitivity."""

    term: str
    """Name of the term."""
    component: str
    """Component of the model."""
    role: str
    """Why the rank keeps it."""
    formula: str
    """Derivative in letters."""
    latex: str
    """The same as LaTeX."""
    slope: str
    """Bytes per unit, exact."""


class Slopes(Part):
    """The formulas behind a sensitivity."""

    name: str
    """Symbol."""
    letter: str
    """Its letter."""
    slope: str
    """Bytes per unit of the whole account, exact."""
    lines: list[Slope]
    """The largest contribution first."""
    uses: dict[str, str]
    """Definitions of the letters."""


class Bound(Part):
    """A value of a symbol, and the peak that it has."""

    value: int
    """The value."""
    peak: int
    """Bytes of the peak."""
    rank: int
    """Pipeline rank that keeps most."""
    moment: str
    """Moment of a step at which it peaks."""
    values: dict[str, int]
    """Parameters that go along with it."""


class Coefficient(Part):
    """One coefficient of the peak, a polynomial of the symbol."""

    power: int
    """Exponent of the symbol."""
    text: str
    """The coefficient in letters."""
    latex: str
    """The same as LaTeX."""
    bytes: Exact
    """Its value in bytes."""


class Solution(Part):
    """Value of the symbol at the limit, as a formula."""

    text: str
    """The formula in one line of text."""
    latex: str
    """The same as LaTeX."""
    unicode: str
    """The same as Unicode."""
    coefficients: dict[str, Coefficient]
    """What it is written with, by name."""
    uses: dict[str, str]
    """Definitions of terms in the coefficients."""
    uses_latex: dict[str, str]
    """The same as LaTeX."""
    closed: int | None
    """Value of the formula, without roundings, paddings and rules."""
    roundings: Exact
    """Bytes that these add at the answer."""


class FitAnswer(Part):
    """The answer for one symbol."""

    symbol: str
    """Parameter, or another name of what is asked for."""
    unit: str
    """Its unit."""
    largest: bool
    """Whether the largest value that fits is asked for, or the smallest."""
    at: Bound | None
    """That value; null if no value fits."""
    beyond: Bound | None
    """The next legal one, which does not fit; null if there is none."""
    method: str
    """How it was found."""
    polynomial: dict[str, Exact] | None
    """Coefficients of the peak around the answer, by exponent."""
    first: int | None
    """Where the polynomial begins to hold."""
    last: int | None
    """Where it ends to hold."""
    tried: int
    """Values that were tried one by one."""
    others_fit: bool | None
    """Whether values beyond the next legal one fit again; null where that is not known."""
    formula: Solution | None
    """The formula; null where the peak is no polynomial there."""


class Fit(Part):
    """The most, or the least, of each symbol with which a configuration fits."""

    model: str
    """Name of the model."""
    gpu: str
    """Name of the GPU."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    gpu_memory: int
    """Bytes of the memory of a GPU."""
    share: Exact
    """Share of it that may be used."""
    inputs: dict[str, int]
    """Every parameter by name."""
    keep: str
    """What stays while the hidden size grows."""
    answers: list[FitAnswer]
    """One for each symbol."""
    limit: Exact
    """Bytes that the peak must not exceed."""
