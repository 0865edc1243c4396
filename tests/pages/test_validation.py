"""docs/fujii2024.md is fresh, complete, and its counts and estimates are those of a recount by hand."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from math import lcm
from pathlib import Path

import pytest

from validation import fujii2024
from validation.discussion import discussion
from validation.estimates import ESTIMATORS, Cell, Estimate, estimated, estimates
from validation.runs import STATUSES, Run, read

pytestmark = pytest.mark.slow

GIB = 2**30
COLUMNS = ("n_gpus", "tp", "cp", "pp", "mbs")
with (Path(__file__).parents[1] / "data" / "fujii2024_runs.csv").open(newline="") as table:
    ROWS = list(csv.DictReader(table))
h, a, k, f, L, v, s = 4096, 32, 8, 14336, 32, 128256, 8192
LAYER = 2 * h * h + 2 * h * h * k // a + 3 * h * f + 2 * h


@pytest.fixture(scope="module")
def cells() -> tuple[Cell, ...]:
    return estimated(read())


def published(N: int, t: int, c: int, p: int, b: int) -> Fraction:
    """The estimator by hand: first stage, distributed optimizer, fp32 gradients, at least p micro-batches."""
    D = N // (t * c * p)
    parameters = Fraction(L * LAYER + 2 * h * v, t) + h if p == 1 else Fraction(L // p * LAYER + h * v, t)
    activations = L * s * b * h * (12 + Fraction(4 * k, a) + Fraction(8 * f, h)) + 8 * s * b * h * p
    if p == 1:
        activations += 4 * s * b * h * (1 + Fraction(v, h))
    assert 1024 // (D * b) >= p
    return (6 + Fraction(12, D * c)) * parameters + activations / (t * c)


def norms_whole(N: int, t: int, c: int, p: int, b: int) -> Fraction:
    shards = N // (t * p)
    return published(N, t, c, p, b) + (6 + Fraction(12, shards)) * (L // p) * 2 * h * (1 - Fraction(1, t))


def ledger(N: int, t: int, c: int, p: int, b: int) -> Fraction:
    """What the first of several stages keeps, by hand: fused kernels, padded buffers, masked ids, table of RoPE.

    FlashAttention, which Transformer Engine chooses on A100, has an output of [b, s, a, d]. The projection needs
    [s, b, a d]: one and the same memory for b = 1, a bf16 copy for more.
    """
    assert p > 1
    d, shards, T = h // a, N // (t * p), Fraction(s * b, c)
    layer = [h, (a + 2 * k) * d * h // t, a * d * h // t, h, 2 * f * h // t, f * h // t]
    parameters = [v * h // t, *layer * (L // p)]
    assert all(size % 64 == 0 for size in parameters)
    unit = lcm(shards, 128)
    buffer = -(-sum(parameters) // unit) * unit
    copied = 2 * a * d if b > 1 else 0
    saved = (8 * h + 8 + 4 * a * d + copied + 4 * k * d + 6 * f + 4 * a) * T / t
    return (6 + Fraction(12, shards)) * buffer + L // p * p * saved + 9 * p * T + Fraction(4 * d * s, c)


def place(row: dict[str, str]) -> tuple[int, int, int, int, int]:
    N, t, c, p, b = (int(row[name]) for name in COLUMNS)
    return N, t, c, p, b


def verdict(total: Fraction) -> str:
    share = total / (40 * GIB)
    return "fits" if share <= Fraction(4, 5) else "uncertain" if share <= 1 else "out of memory"


def lines(heading: str) -> list[list[str]]:
    """The cells of the first table whose first column is called ``heading``."""
    text = fujii2024.PAGE.read_text()
    start = text.index(f"| {heading} |")
    body = text[start:].split("\n\n")[0].splitlines()[2:]
    return [[part.strip() for part in line.strip("|").split("|")] for line in body]


def test_page_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert fujii2024.main(["--check"]) == 0, capsys.readouterr().out
    assert not capsys.readouterr().out


def test_stale_page_fails_with_a_diff_and_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "docs" / "fujii2024.md"
    fresh = fujii2024.PAGE.read_text()
    monkeypatch.setattr(fujii2024, "PAGE", page)
    assert fujii2024.main(["--check"]) == 1
    assert not page.exists()
    page.parent.mkdir()
    page.write_text(fresh.replace("79.9%", "12.3%", 1))
    assert fujii2024.main(["--check"]) == 1
    printed = capsys.readouterr().out
    assert "-" in printed
    assert "12.3%" in printed
    assert fujii2024.main([]) == 0
    assert page.read_text() == fresh


def test_every_run_appears_once() -> None:
    shown = Counter((tuple(map(int, line[:5])), line[-2], line[-1]) for line in lines("GPUs | TP"))
    assert shown == Counter((place(row), row["status"], row["tflops_per_gpu"]) for row in ROWS)
    assert set(shown.values()) == {1}
    assert len(ROWS) == 108


@pytest.mark.parametrize(("name", "by_hand"), [("fujii2024", published), ("fujii2024_norms", norms_whole)])
def test_every_published_estimate_is_the_one_by_hand(
    name: str, by_hand: Callable[..., Fraction], cells: tuple[Cell, ...]
) -> None:
    for row, cell in zip(ROWS, cells, strict=True):
        N, t, c, p, b = place(row)
        if t * c * p > N:
            assert cell.run.data_parallel is None
            assert not cell.estimates
        else:
            assert cell.estimates[name].bytes == by_hand(N, t, c, p, b)


@pytest.mark.parametrize("at", [(16, 4, 2, 2, 4), (256, 4, 1, 2, 4), (16, 2, 4, 2, 2), (64, 2, 2, 4, 1)])
def test_ledger_by_hand(at: tuple[int, int, int, int, int], cells: tuple[Cell, ...]) -> None:
    (row,) = (number for number, row in enumerate(ROWS) if place(row) == at)
    kept = estimates(cells[row].run, saved_only=True)["ledger"].bytes
    assert kept == ledger(*at)
    assert kept < cells[row].estimates["ledger"].bytes


@pytest.mark.parametrize("name", ESTIMATORS)
def test_counts_are_those_of_a_recount(name: str, cells: tuple[Cell, ...]) -> None:
    recount: Counter[tuple[str, str]] = Counter()
    for row, cell in zip(ROWS, cells, strict=True):
        N, t, c, p, b = place(row)
        said = "no such layout"
        if t * c * p <= N:
            by_hand = {"fujii2024": published, "fujii2024_norms": norms_whole}.get(name)
            said = verdict(by_hand(N, t, c, p, b) if by_hand else cell.estimates[name].bytes)
        recount[said, row["status"]] += 1
    shown = lines(f"verdict: {ESTIMATORS[name]}")
    for said, *numbers, together in shown[:-1]:
        assert list(map(int, numbers)) == [recount[said, status] for status in STATUSES]
        assert int(together) == sum(map(int, numbers))
    assert shown[-1] == ["all", "56", "44", "8", "108"]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_counts_are_those_of_the_cells_on_the_page(name: str) -> None:
    column = 6 + list(ESTIMATORS).index(name)
    on_page = Counter(
        ((line[column].split(", ")[2].strip("*") if line[column] else "no such layout"), line[-2])
        for line in lines("GPUs | TP")
    )
    for said, *numbers, _ in lines(f"verdict: {ESTIMATORS[name]}")[:-1]:
        assert list(map(int, numbers)) == [on_page[said, status] for status in STATUSES]


@pytest.mark.parametrize("name", ["fujii2024", "ledger"])
def test_contradictions_are_listed_and_bold(name: str) -> None:
    column = 6 + list(ESTIMATORS).index(name)
    bold = [(line[0], line[column]) for line in lines("GPUs | TP") if "**" in line[column]]
    listed = [(line[0], line[3]) for line in lines(f"GPUs | layout | DP | {ESTIMATORS[name]}")]
    assert bold == listed
    assert len(bold) == {"fujii2024": 7, "ledger": 12}[name]


def test_copied_output_of_attention_takes_one_run_from_the_contradictions(cells: tuple[Cell, ...]) -> None:
    """1 GiB on each rank of TP 2, CP 2, PP 2 with two sequences: in bf16, for 16 layers of two micro-batches."""
    (row,) = (number for number, row in enumerate(ROWS) if place(row) == (32, 2, 2, 2, 2))
    copied = 2 * a * 128 * (s * 2 // 2) // 2 * 16 * 2
    total = cells[row].estimates["ledger"].bytes
    assert copied == GIB
    assert ROWS[row]["status"] == "dash"
    assert (verdict(total - copied), verdict(total)) == ("fits", "uncertain")


def test_words_that_are_not_true_any_more_are_refused(cells: tuple[Cell, ...]) -> None:
    too_much = Estimate(Fraction(80 * GIB), 2.0, "out of memory")
    changed = [
        Cell(cell.run, {**cell.estimates, "ledger": too_much} if cell.estimates else {}) for cell in cells
    ]
    with pytest.raises(ValueError, match="every run that trained fits by the ledger"):
        discussion(changed)


def test_a_table_of_other_runs_is_refused(tmp_path: Path) -> None:
    head = "gpu,seq,n_gpus,tp,cp,pp,mbs,status,tflops_per_gpu\n"
    row = "A100-40GB,8192,8,4,1,2,1,ok,182.6\n"
    path = tmp_path / "runs.csv"
    path.write_text(head + row)
    assert read(path) == (Run(8, 4, 1, 2, 1, "ok", "182.6"),)
    changes = (("ok", "maybe"), ("8192", "4096"), ("40GB", "80GB"))
    for bad in (row + row, *(row.replace(*change) for change in changes)):
        path.write_text(head + bad)
        with pytest.raises(ValueError, match=r"twice|unexpected run"):
            read(path)
