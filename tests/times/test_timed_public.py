"""Public throughputs and constants by generation: the table, its halves, and the figures of docs/validation.md."""

from __future__ import annotations

import csv
from hashlib import sha256

import pytest

from shardmath.catalogue import read
from shardmath.generated.definitions import EFFICIENCIES, ERROR_OF_EXPERTS, ERRORS, MEASURED_GPUS
from validation.measured.reading import DATA
from validation.report import PAGE
from validation.timed.presets import FITTED, generations, with_experts
from validation.timed.public import TABLE, is_shown, public_runs
from validation.timed.simumax import simumax_runs

pytestmark = pytest.mark.slow

#: Rows of the page that are computed by the plain evaluator.
FEW = 10
TEXT = PAGE.read_text(encoding="utf-8")


def cells(*first: str) -> list[str]:
    """The rest of the line of the page that begins with these cells."""
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| {' | '.join(first)} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][len(first):]


def _row(first: str, columns: int) -> list[str]:
    """The line of the table of constants that begins with ``first``: that with as many columns."""
    lines = [line for line in TEXT.splitlines() if line.startswith(f"| {first} |") and line.count("|") == columns + 2]
    return [cell.strip() for cell in lines[-1].strip("|").split("|")][1:]


def test_every_row_has_a_source_a_date_and_a_name_of_its_own() -> None:
    with (DATA / TABLE).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({row["id"] for row in rows}) == len(rows) == 131
    assert all(row["source"] and row["date"] for row in rows)
    assert all(bool(row["tokens_per_second_per_gpu"]) != bool(row["step_seconds"]) for row in rows)


def test_half_of_the_rows_are_never_fitted_to() -> None:
    counted = [item for item in public_runs() if item.run is not None and not item.has_experts]
    assert len(counted) + len(simumax_runs()) >= 80
    assert 0.4 < sum(item.shown for item in counted) / len(counted) < 0.6
    for item in counted:
        assert item.shown == (sha256(item.id.encode()).hexdigest()[-1] in "02468ace") == is_shown(item.id)


@pytest.mark.parametrize("place", range(FEW))
def test_a_row_of_the_page(place: int) -> None:
    """By the plain evaluator, with the constants of the catalogue."""
    counted = [item for item in public_runs() if item.run is not None]
    item = counted[place * len(counted) // FEW]
    assert item.run is not None
    assert item.cluster is not None
    values, module = item.run.values(item.cluster), item.run.job.evaluator.times
    seconds = module.terms(**{name: float(values[name]) for name in module.INPUTS})["step.time"]
    half = "fitted to" if item.shown and not item.has_experts else "judges"
    assert cells(item.id) == [half, f"{item.run.seconds:.3f}", f"{seconds / item.run.seconds - 1:+.1%}"]


def test_the_page_has_the_shipped_bands() -> None:
    for name, error in ERRORS.items():
        assert cells(name.replace("_", " "), "band")[2] == f"{error / 10:.1f}% ({error / 10:.1f}%)"


def test_gpus_with_measured_steps_are_those_of_the_runs() -> None:
    """The H100 of 96 GB with a limit of power is in no catalogue."""
    ran: dict[str, set[str]] = {}
    for runs in (*generations(), *with_experts()):
        ran.setdefault(runs.generation, set()).update(item.cluster.gpu.name for item in runs.items)
    catalogue = read("gpus")
    assert {name: {*gpus} for name, gpus in MEASURED_GPUS.items()} == {
        name: {gpu for gpu in gpus if gpu in catalogue} for name, gpus in ran.items()}


def test_the_band_of_experts_is_of_runs_that_nothing_was_fitted_to() -> None:
    judged = [item.id for item in public_runs() if item.has_experts]
    assert len(judged) == 34
    assert not {*judged} & {name for runs in generations() for name in runs.names}
    errors = sorted(abs(float(cells(name)[2].rstrip("%"))) for name in judged)
    table = TEXT[TEXT.index("### Models with experts"):]
    line = next(line for line in table.splitlines() if line.startswith("| all |"))
    rows, median = (cell.strip() for cell in line.strip("|").split("|")[1:3])
    assert rows == "34"
    assert float(median.rstrip("%")) == pytest.approx((errors[16] + errors[17]) / 2, abs=0.1)
    assert cells("shipped band")[2] == f"{ERROR_OF_EXPERTS / 10:.1f}% ({ERROR_OF_EXPERTS / 10:.1f}%)"


def test_shipped_constants_are_those_of_the_fit() -> None:
    """The page shows both, the fit of `make validate` in brackets."""
    columns = list(EFFICIENCIES)
    for name in FITTED:
        shipped = [f"{EFFICIENCIES[item][name]:,}" for item in columns]
        assert _row(f"`{name}`", len(columns)) == [f"{value} ({value})" for value in shipped]
