"""Spaces of several parts have one answer, that of exact counting; the command shows it, or says what is wrong."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import brute_force
import pyarrow.parquet as pq
import pytest
import small_space
from brute_force import Row

import shardmath
from shardmath.cli.main import exit_code
from shardmath.commands.explore.answer import Counted, Explored, Ranking, Unbeaten
from shardmath.generated.definitions import VERDICTS
from shardmath.search.nests.configurations import Configuration
from shardmath.search.spaces import Best, Front, Histogram, Space

pytestmark = pytest.mark.slow

QUESTIONS = (
    Best("best", ("tensor_parallel", "-micro_batch_size"), 9, among="uncertain"),
    Best("per", ("peak",), 2, ("implementation", "model", "recompute"), "legal"),
    Front("front", ("peak", "-micro_batch_size"), "legal"),
    Histogram("sizes", "peak", (2**33, 2**34, 2**35), "legal"),
)
#: Two implementations: two parts.
SPACE = Space(
    axes={
        "model": ["llama-3.2-1b", "llama-3.1-8b"], "implementation": ["nanotron", "huggingface"],
        "tensor_parallel": [1, 2, 4], "micro_batch_size": [1, 2, 3, 4], "recompute": ["none", "full"],
        "seq_length": [2048, 3072, 4096, 8192],
    },
    gpu="a100-40gb", fixed={"num_gpus": 16, "global_batch_size": 192}, questions=QUESTIONS,
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows") / "rows.parquet"


@pytest.fixture(scope="module")
def found(table: Path) -> Explored:
    return shardmath.explore(SPACE, rows=table, terms=["data_parallel"], among="uncertain")


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return brute_force.all_rows(SPACE)


@pytest.mark.slow
def test_every_configuration_is_counted_once(found: Explored, rows: list[Row]) -> None:
    verdicts = Counter(row.verdict for row in rows if row.verdict is not None)
    assert len(SPACE.parts()) == 2
    assert found.size == found.done == len(rows)
    assert found.complete
    assert list(found.verdicts.values()) == [verdicts[number] for number in range(len(VERDICTS))]
    assert found.legal + sum(item.count for item in found.broken) == found.size
    assert min(found.verdicts.values()) > 0, "the space has some of each"


def test_the_best_of_all_parts(found: Explored, rows: list[Row]) -> None:
    answered = found.answers["best"]
    assert isinstance(answered, Ranking)
    (group,) = answered.groups
    expected = brute_force.best(rows, QUESTIONS[0])[()]  # type: ignore[arg-type]
    assert [_seen(item) for item in group.configurations] == [_expected(row, "best") for row in expected]
    assert len({row.keys["best"] for row in expected if row.keys}) < len(expected), "some are equal"


def test_the_best_of_every_group(found: Explored, rows: list[Row]) -> None:
    answered = found.answers["per"]
    assert isinstance(answered, Ranking)
    expected = brute_force.best(rows, QUESTIONS[1])  # type: ignore[arg-type]
    assert {
        tuple(group.per.values()): [_seen(item) for item in group.configurations] for group in answered.groups
    } == {labels: [_expected(row, "per") for row in members] for labels, members in expected.items()}


def test_the_front_of_all_parts(found: Explored, rows: list[Row]) -> None:
    answered = found.answers["front"]
    assert isinstance(answered, Unbeaten)
    expected = brute_force.front(rows, QUESTIONS[2])  # type: ignore[arg-type]
    by_keys = sorted(expected, key=lambda row: row.keys["front"])  # type: ignore[index]
    assert [_seen(item) for item in answered.configurations] == [_expected(row, "front") for row in by_keys]


def test_the_histogram_of_all_parts(found: Explored, rows: list[Row]) -> None:
    answered = found.answers["sizes"]
    assert isinstance(answered, Counted)
    assert list(answered.counts) == brute_force.histogram(rows, QUESTIONS[3])  # type: ignore[arg-type]


def test_plain_data(found: Explored) -> None:
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    best = plain["answers"]["best"]["groups"][0]["configurations"][0]
    assert best["verdict"] in ("fits", "uncertain")
    assert isinstance(best["peak_bytes"], int)
    assert isinstance(best["model"], str)
    assert plain["size"] == found.size
    assert plain["rows"] == plain["verdicts"]["fits"] + plain["verdicts"]["uncertain"]


def test_rows_of_all_parts(found: Explored, rows: list[Row], table: Path) -> None:
    listed = pq.read_table(table).to_pylist()
    expected = [row for row in rows if row.verdict in (0, 1)]
    assert found.rows == len(listed) == len(expected)
    assert {(row["part"], row["number"]): row["peak_bytes"] for row in listed} == {
        row.number: row.peak for row in expected
    }
    labels = {row.number: row.labels for row in expected}
    assert all(row[name] == label for row in listed for name, label in labels[row["part"], row["number"]].items())
    assert [row["part"] for row in listed] == sorted(row["part"] for row in listed)


@pytest.mark.slow
def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, table = small_space.file_in(tmp_path), tmp_path / "rows.csv"
    asked = ["explore", str(path), "--rows", str(table), "--among", "uncertain"]
    asked += ["--term", "first.total", "--term", "data_parallel", "--term", "first.total / 2**30"]
    assert exit_code([*asked, "--json"]) == 0
    plain = json.loads(capfd.readouterr().out)
    assert plain["complete"]
    assert plain["rows"] == len(table.read_text(encoding="utf-8").splitlines()) - 1
    assert plain["verdicts"]["fits"] == len(small_space.counted()["fits"])
    assert exit_code(asked) == 0
    shown = capfd.readouterr().out
    assert f"{plain['rows']:,}   written" in shown
    assert "broke data_parallel" in shown
    assert "least-peak: least peak of those that are legal for each recompute, num_gpus" in shown
    assert "front: not beaten in peak, -seq_length, num_gpus of those that fit or may fit" in shown


@pytest.mark.slow
@pytest.mark.parametrize(("more", "line"), [
    (["--rows", "rows.txt"], "error: rows = 'rows.txt': must be a file that ends in .parquet or .csv"),
    (["--resume"], "error: resume = True: must not be given without a checkpoint"),
    (["--checkpoint", "no-such-folder/state"], "error: checkpoint = "),
    (["--rows", "rows.csv", "--term", "peek"], "error: questions.rows.rows = 'peek': must have known names, not peek"),
    (["--threads", "none"], "error: threads = 'none': must be an integer"),
])
def test_the_command_refuses_in_one_line(
    more: list[str], line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(["explore", str(small_space.file_in(tmp_path)), *more]) == 2
    said = capfd.readouterr().err
    assert said.startswith(line)
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["space.toml"]


def _seen(item: Configuration) -> tuple[Any, ...]:
    verdict = [name for name, _ in VERDICTS].index(item.verdict)
    keys = tuple(map(Fraction, item.keys.values()))
    return item.part.number, item.number, item.labels, keys, item.peak_bytes, verdict


def _expected(row: Row, name: str) -> tuple[Any, ...]:
    assert row.keys is not None
    return row.part, row.index, dict(row.labels), row.keys[name], row.peak, row.verdict
