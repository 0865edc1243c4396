"""The project's targets beside what was measured: reported, never asserted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.contenders import WHOLE
from benchmarks.nests import TIMED, NestRate
from benchmarks.rates import Rate
from benchmarks.roofline import Roofline
from benchmarks.startup import Figure

_STARTUP = {"import shardmath": 0.2, "shardmath --help": 0.3, "all of generated/, nothing kept": 10.0,
            "all of generated/, simplified forms kept": 5.0,
            "shardmath sweep, again": 0.6}
#: Processor seconds of first uses, by the command.
_FIRST = {"explain": 2.0, "sweep": 4.0, "formula": 0.5}
_MILLION = 0.1
#: The flat evaluator: at least so much of the same loop in C, of the copy bandwidth, and of lambdify with NumPy.
_OF_C, _OF_COPY, _OF_LAMBDIFY = 0.9, 0.85, 100.0
#: Loop nests: evaluated configurations per second with large tables, with eight entries and with step time, and beside
#: C; seconds for the small space, and MiB for the large one.
_LARGE_TABLE, _EIGHT, _TIMED, _NEST_OF_C, _SMALL_SPACE, _NEST_MEMORY = 4e9, 1.5e9, 2e9, 0.95, 0.05, 300.0


@dataclass(frozen=True)
class Target:
    """One target: what was measured must be below the goal, or with ``at_least`` not below it."""

    name: str
    goal: float
    measured: float
    unit: str = "s"
    remark: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Tell if the figure is on the right side of the goal."""
        reached = self.measured >= self.goal if self.at_least else self.measured < self.goal
        return reached and not self.remark


def targets(
    rates: Sequence[Rate], roofline: Roofline, nests: Sequence[NestRate], nest_memory: float | None,
    figures: Sequence[Figure], imported: Mapping[str, bool],
) -> list[Target]:
    """Return every target for which there is a measurement."""
    fastest = max((rate for rate in rates if _alike(rate, rates[0])), key=lambda rate: rate.threads)
    goals = [
        Target("a million legal layouts on all cores, after compilation", _MILLION, 1e6 / fastest.rate),
        *_flat(roofline), *_lambdify(fastest, rates), *_nests(nests),
    ]
    if nest_memory is not None:
        goals.append(Target("nest: the largest sweep", _NEST_MEMORY, nest_memory, "MiB"))
    heavy = [name for name in ("sympy", "numba") if imported.get(name)]
    for figure in figures:
        if figure.name in _STARTUP:
            remark = f"loads {', '.join(heavy)}" if heavy and figure.name == "import shardmath" else ""
            goals.append(Target(figure.name, _STARTUP[figure.name], figure.seconds, remark=remark))
        if figure.before is not None:
            command = figure.name.partition(": ")[2].split()[0].strip(",")
            kernels = "--kernel" in figure.name
            goals.append(Target(figure.name, 4.0 if kernels else _FIRST[command], figure.processor))
    return goals


def _flat(roofline: Roofline) -> list[Target]:
    """Return the compiled evaluator, which is the first stream, on all cores: beside C and beside a copy."""
    most = max(stream.threads for stream in roofline.streams)
    ours, *others = (stream for stream in roofline.streams if stream.threads == most)
    goals = [
        Target(f"flat evaluator / {other.contender}", _OF_C, ours.rate / other.rate, "times", at_least=True)
        for other in others if other.contender.startswith("C")
    ]
    return [*goals, Target("flat evaluator / copy bandwidth", _OF_COPY, ours.share, "times", at_least=True)]


def _nests(nests: Sequence[NestRate]) -> list[Target]:
    """Loop nests on all cores."""
    most = max((nest.threads for nest in nests), default=0)
    goals = []
    for nest in nests:
        if nest.threads != most or nest.contender.startswith("C,"):
            continue
        name = f"nest, {nest.evaluator}, {nest.entries} entries"
        if nest.in_c is not None:
            goal = _TIMED if nest.evaluator == TIMED else _EIGHT if nest.entries == 8 else _LARGE_TABLE
            goals.append(Target(f"{name}: 10⁹/s", goal / 1e9, nest.rate / 1e9, "", at_least=True))
            goals.append(Target(f"{name} / C", _NEST_OF_C, nest.in_c, "times", at_least=True))
        elif "3.2 million" in nest.contender:
            goals.append(Target(f"nest, {nest.evaluator}: 3.2 million layouts, warm", _SMALL_SPACE, nest.best))
    return goals


def _lambdify(ours: Rate, rates: Sequence[Rate]) -> list[Target]:
    """Return the same answer through NumPy, on the same layouts."""
    return [
        Target(f"flat evaluator / {rate.contender}", _OF_LAMBDIFY, ours.rate / rate.rate, "times", at_least=True)
        for rate in rates
        if (rate.batch, rate.computes) == (ours.batch, WHOLE) and rate.contender.startswith("SymPy lambdify")
    ]


def _alike(rate: Rate, other: Rate) -> bool:
    return (rate.contender, rate.batch) == (other.contender, other.batch)
