"""The documents about formulas, names, tables and calibration."""

from __future__ import annotations

from typing import Any

from shardmath.commands.calibrate.calibrate import Judged
from shardmath.commands.formula.run import Formula
from shardmath.machines import Network
from shardmath.schemas.parts import Gpu, Model, Part


class Models(Part):
    """The models known by name."""

    models: list[Model]
    """Those of which some text has the words that were asked for."""


class Gpus(Part):
    """The GPUs known by name."""

    gpus: list[Gpu]
    """Those of which some text has the words that were asked for."""


class Networks(Part):
    """The networks between servers known by name."""

    networks: list[Network]
    """Those of which some text has the words that were asked for."""


class TermName(Part):
    """One term that has a formula."""

    name: str
    """Name, as ``shardmath formula`` takes it."""
    group: str
    """What it belongs to."""
    unit: str
    """What it counts."""
    meaning: str
    """What it is."""


class Formulas(Part):
    """All terms of an implementation and of the published sets (``formula --list``)."""

    implementation: str
    """Framework."""
    kernels: dict[str, str]
    """Kernel choices that were asked for."""
    terms: list[TermName]
    """The terms, in the order in which they are computed."""


class Evaluate(Part):
    """Summary of a written table."""

    output: str
    """Path of the Parquet file."""
    rows: int
    """Rows of the table."""
    counts: dict[str, int]
    """Rows by verdict, or by what is wrong with them."""
    passed_through: list[str]
    """Columns that are no parameters, and were copied."""


class Calibrate(Part):
    """Efficiencies of a cluster, fitted to runs on it."""

    cluster: dict[str, Any]
    """The cluster with what was fitted, as a cluster file has it."""
    usual: dict[str, int]
    """Constants before."""
    fitted: dict[str, int]
    """Constants after."""
    groups: list[Judged]
    """Median errors of runs by group."""
    all: Judged
    """Median errors of all runs."""
    one_by_one: bool
    """Whether each run was left out by itself, as there is one group."""


__all__ = ["Calibrate", "Evaluate", "Formula", "Formulas", "Gpus", "Models", "Networks"]
