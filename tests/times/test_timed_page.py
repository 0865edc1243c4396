"""The figures of step time in docs/validation.md: computed anew by the plain evaluators, one run after another."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from shardmath.commands.calibrate.fitting import CONTENTION
from validation.report import DOCS, PAGE
from validation.timed.baselines import TEXTBOOK, at_random, by_rule
from validation.timed.cases import LARGEST, Table, tables, torchtitan_runs
from validation.timed.metrics import Ranking, spread
from validation.timed.results import CALIBRATED, CONSTANTS, RANDOM, RULE, TIES, USUAL, ranked, tied

pytestmark = pytest.mark.slow

PART = PAGE.read_text().split("\n## Step time\n")[1].split("\n## ")[0]
SECTIONS = {part.split("\n")[0]: part for part in PART.split("\n### ")}


@cache
def constants() -> Mapping[tuple[str, str], Mapping[str, int]]:
    """The constants that a group was predicted with."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    with (DOCS / "validation" / "time_constants.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["table"], row["group"]), {})[row["constant"]] = int(row["value"])
    return found


@cache
def seconds(table: Table, way: str) -> tuple[float, ...]:
    """Predicted seconds of a step of every run, by the plain evaluator of its kernels."""
    found = []
    for run in table.runs:
        changed = {USUAL: {}, CALIBRATED: constants()[table.name, run.group], CONSTANTS: TEXTBOOK}[way]
        module = run.job.evaluator.times
        values = {**run.values(table.cluster), **changed}
        found.append(module.terms(**{name: float(values[name]) for name in module.INPUTS})["step.time"])
    return tuple(found)


@cache
def ranking(table: Table, way: str) -> Ranking:
    if way == TIES:
        return tied(table, ranking(table, USUAL))
    if way in (RANDOM, RULE):
        return ranked(table, {RANDOM: at_random, RULE: by_rule}[way](table), times=False)
    return ranked(table, np.array(seconds(table, way)))


def cells(section: str, first: str, heading: str) -> list[str]:
    """The cells of the line that begins with ``first`` in the first table of a section headed by ``heading``."""
    body = SECTIONS[section].split(f"| {heading} |")[1].split("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
    return next(line for line in lines if line[0] == first)


@pytest.fixture(params=["fujii2024", "hagemann2023", "nanotron"])
def table(request: pytest.FixtureRequest) -> Table:
    return next(table for table in tables() if table.name == request.param)


def test_all_runs_with_a_time_are_there() -> None:
    assert {table.name: len(table.runs) for table in tables()} == {
        "fujii2024": 56, "hagemann2023": 165, "nanotron": 979,
    }
    assert max(run.job.values["num_gpus"] for run in tables()[2].runs) <= LARGEST


def test_no_constant_is_above_its_peak() -> None:
    shares = [value for fit in constants().values() for name, value in fit.items()
              if name.endswith("per_mille") and name != CONTENTION]
    assert len(shares) == 5 * 22
    assert 0 < max(shares) <= 1000


@pytest.mark.slow
@pytest.mark.parametrize("way", [USUAL, CALIBRATED, CONSTANTS, RANDOM, RULE, TIES])
def test_a_line_of_the_page(table: Table, way: str) -> None:
    found = ranking(table, way)
    line = cells(table.title, way, "chosen by")
    mean, high, middle = spread(list(found.regret.values()))
    assert line[5:9] == [f"{found.ordered:.1%}", f"{mean:.2%}", f"{high:.2%}", f"{middle:.2%}"]
    if way in (USUAL, CALIBRATED, CONSTANTS):
        assert line[1:3] == [f"{found.error:.1%}", f"{found.bias:+.1%}"]
        assert line[9] == f"{spread(list(found.best_of_few.values()))[2]:.2%}"


def test_regrets_of_groups(table: Table) -> None:
    ways = [ranking(table, way).regret for way in (USUAL, CALIBRATED, RULE, RANDOM)]
    for group in ways[0]:
        assert cells(table.title, group, "group")[3:] == [f"{regret[group]:.1%}" for regret in ways]


def test_targets_are_reached() -> None:
    """What was asked of step time, from the plain evaluators."""
    fujii, hagemann, nanotron = tables()
    for table in (fujii, hagemann):
        calibrated, usual = ranking(table, CALIBRATED), ranking(table, USUAL)
        mean, high, _ = spread(list(calibrated.regret.values()))
        assert mean <= 0.02
        assert high <= 0.05
        assert mean < spread(list(ranking(table, RULE).regret.values()))[0]
        assert spread(list(usual.regret.values()))[0] <= 0.02
        assert spread(list(ranking(table, TIES).regret.values()))[0] <= 0.005
        assert calibrated.ordered >= 0.94
        assert calibrated.error <= 0.04
        assert calibrated.high <= 0.11
    calibrated = ranking(nanotron, CALIBRATED)
    assert spread(list(calibrated.regret.values()))[2] <= 0.06
    assert spread(list(calibrated.best_of_few.values()))[2] <= 0.01
    assert calibrated.ordered >= 0.84
    assert calibrated.error <= 0.15
    missed = [line for line in PART.splitlines() if line.endswith("| **no** |")]
    assert not missed


@pytest.mark.slow
def test_torchtitan() -> None:
    runs = torchtitan_runs()
    assert len(runs) == 4
    for case, run, cluster in runs:
        values, module = run.values(cluster), run.job.evaluator.times
        predicted = module.terms(**{name: float(values[name]) for name in module.INPUTS})["step.time"]
        line = cells("torchtitan on H100", case.id, "run")
        assert line[3:] == [f"{run.seconds:.3f}", f"{predicted:.3f}", f"{predicted / run.seconds - 1:+.1%}"]
