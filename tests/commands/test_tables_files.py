"""The command for tables: files that appear whole or not at all, in memory that does not grow with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmath import evaluate, explain
from shardmath.cli.main import exit_code

pytestmark = pytest.mark.slow

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
LLAMA = ["--model", "llama-3.1-8b", "--gpu", "h100-80gb"]
#: Evaluates a file and prints the most memory that the process had, in KiB; what getrusage says starts at that of the
#: process that started this one.
MEASURED = """
import re, sys
from pathlib import Path
from shardmath.cli.main import exit_code
assert exit_code(["evaluate", *sys.argv[1:]]) == 0
print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def stored(path: Path, rows: int, group: int = 1 << 17) -> Path:
    """A table of random layouts; its numbers take 48 bytes a row."""
    generator = np.random.default_rng(rows)
    axes = {"tensor_parallel": (1, 2, 4, 8), "pipeline_parallel": (1, 2, 4), "context_parallel": (1, 2),
            "micro_batch_size": (1, 2, 3), "sequence_parallel": (0, 1)}
    writer = None
    for start in range(0, rows, group):
        count = min(group, rows - start)
        columns = {name: generator.choice(values, count) for name, values in axes.items()}
        table = pa.table({**columns, "run": np.arange(start, start + count)})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return path


def test_the_command_writes_what_the_function_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, target = stored(tmp_path / "table.parquet", 1000), tmp_path / "out.parquet"
    options = ["--set", "num_gpus=64", "--set", "global_batch_size=384", "--set", "recompute=full"]
    assert exit_code(["evaluate", str(table), "-o", str(target), *LLAMA, *options]) == 0
    job: dict[str, Any] = {"num_gpus": 64, "global_batch_size": 384, "recompute": "full"}
    expected = evaluate(table, "llama-3.1-8b", "h100-80gb", **job).read_all()
    assert parquet.read_table(target).to_pylist() == expected.to_pylist()
    out = capsys.readouterr().out
    illegal = expected["rule"].length() - expected["rule"].null_count
    assert f"1,000 rows: {illegal:,} illegal, " in out
    assert "passed through: run" in out
    assert 0 < illegal < 1000


@pytest.mark.parametrize("options", [["--term", "peak", "--term", "layer.saved"], ["--all-terms"]], ids=" ".join)
def test_terms_are_chosen(options: list[str], tmp_path: Path) -> None:
    table, target = tmp_path / "table.csv", tmp_path / "out.parquet"
    table.write_text("tensor_parallel,recompute\n2,none\n4,full\n")
    assert exit_code(["evaluate", str(table), "-o", str(target), *LLAMA, *options]) == 0
    answer = parquet.read_table(target)
    found = explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, recompute="full")
    assert answer["peak"][1].as_py() == found.peak.total
    if options == ["--all-terms"]:
        lines = {line.term: line.bytes for line in found.ranks[0].lines}
        assert {name: answer[name][1].as_py() for name in lines} == {name: int(size) for name, size in lines.items()}
    else:
        assert answer.schema.names[2:] == ["rule", "rule_text", "verdict", "rule_80", "peak", "layer.saved"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [(["nowhere.parquet"], "table = 'nowhere.parquet'"), (["table.csv", "--set", "num_gpus"], "written name=value"),
     (["table.csv", "--set", "tp=2"], "must be a parameter"), (["table.csv", "--term", "peek"], "nearest legal: peak"),
     (["table.csv", "--term", "peak", "--all-terms"], "--all-terms"), (["wrong.csv"], "(row 1)"),
     (["table.csv", "--set", "num_gpus=1", "--set", "num_gpus=2"], "once"),
     (["table.csv", "-o", "out.csv"], ".parquet")],
    ids=str,
)
def test_bad_input_is_one_line_and_no_file(
    arguments: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("tensor_parallel\n2\n")
    Path("wrong.csv").write_text("tensor_parallel\n2\n0\n")
    assert exit_code(["evaluate", "-o", "out.parquet", *LLAMA, *arguments]) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert line in shown.err
    assert {path.name for path in tmp_path.iterdir()} == {"table.csv", "wrong.csv"}


def test_an_error_in_the_last_rows_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    target.write_text("old")
    table = pa.table({"tensor_parallel": [1] * 300_000 + [0]})
    parquet.write_table(table, tmp_path / "table.parquet")
    assert exit_code(["evaluate", str(tmp_path / "table.parquet"), "-o", str(target), *LLAMA]) == 2
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of the measure is that of Linux")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A table of 144 MB of numbers, in small row groups and in one, takes less than 100 MB more than a small one."""
    def most(rows: int, group: int) -> int:
        table = stored(tmp_path / "table.parquet", rows, group)
        arguments: list[Any] = [table, "-o", tmp_path / "out.parquet", *LLAMA, "--set", "num_gpus=64"]
        done = subprocess.run([sys.executable, "-c", MEASURED, *map(str, arguments)], check=True, capture_output=True)
        assert parquet.read_metadata(tmp_path / "out.parquet").num_rows == rows
        return int(done.stdout.split()[-1]) // 1024

    most(1000, 1000)  # compiles
    small, rows = most(1 << 19, 1 << 17), 3_000_000
    assert max(most(rows, 1 << 17), most(rows, rows)) - small < 100
