"""Tables that the package writes are read back by it, to the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmath import InputError, evaluate
from shardmath.cli.main import exit_code
from shardmath.commands.fit.rows import fit_rows

pa = pytest.importorskip("pyarrow")
csv, parquet = (pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "parquet"))

pytestmark = pytest.mark.slow

JOB: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "h100-80gb", "global_batch_size": 32, "seq_length": 4096}
RESULTS = ["first_stage_bytes", "last_stage_bytes", "peak_bytes", "verdict", "step_seconds", "rule_80"]
TERMS = ("first.total", "last.total", "peak", "step.time")


def sweep(path: Path, ending: str, *more: str) -> Path:
    file = path / f"layouts.{ending}"
    assert exit_code(["sweep", JOB["model"], "--gpu", JOB["gpu"], "--gpus", "8", "--gbs", "32", "--seq", "4k",
                      f"--{ending}", str(file), *more, "-q"]) == 0
    return file


@pytest.mark.parametrize(("ending", "read"), [("csv", csv.read_csv), ("parquet", parquet.read_table)])
def test_a_sweep_is_evaluated_to_its_own_numbers(ending: str, read: Any, tmp_path: Path) -> None:
    path = sweep(tmp_path, ending)
    written = read(path)
    assert max(written["virtual_pipeline"].to_pylist()) > 1
    assert any(written["account_for_loss"].to_pylist())
    for table in (path, written):
        answer = evaluate(table, terms=TERMS, **JOB).read_all()
        assert answer["rule"].null_count == len(written)
        columns = ("first.total", "last.total", "peak", "verdict", "step.time", "rule_80")
        for own, name in zip(columns, RESULTS, strict=True):
            expected = written[name].to_pylist()
            exact = expected if own != "step.time" else pytest.approx(expected, rel=1e-12)
            assert answer[own].to_pylist() == exact
        assert answer.schema.metadata[b"left out"].decode().split("\n") == RESULTS
        assert not {"first_stage_bytes", "peak_bytes", "step_seconds"}.intersection(answer.column_names)


def test_answers_are_evaluated_again(tmp_path: Path) -> None:
    table = {"tensor_parallel": [1, 2, 4], "note": ["a", "b", "c"]}
    once = evaluate(table, terms=TERMS[:3], num_gpus=8, **JOB).read_all()
    again = evaluate(once, terms=TERMS[:3], num_gpus=8, **JOB).read_all()
    assert again.equals(once)
    assert again.schema.metadata[b"left out"].decode().split("\n") == [
        "rule", "rule_text", "verdict", "rule_80", "first.total", "last.total", "peak"]


def test_rows_of_a_sweep_are_solved(tmp_path: Path) -> None:
    path = sweep(tmp_path, "parquet", "--vpp", "1", "--tp", "1", "--recompute", "none")
    alone = {name: value for name, value in JOB.items() if name != "seq_length"}
    written, solved = parquet.read_table(path), fit_rows(str(path), "seq_length", **alone).read_all()
    fits = [verdict == "fits" for verdict in written["verdict"].to_pylist()]
    assert any(fits)
    assert [(length or 0) >= JOB["seq_length"] for length in solved["seq_length"].to_pylist()] == fits


def test_what_a_table_says_of_all_rows_is_not_said_twice() -> None:
    with pytest.raises(InputError, match="virtual_pipeline = 2: must not be given both as a column and as a value"):
        evaluate({"virtual_pipeline": [1, 1]}, virtual_pipeline=2, num_gpus=8, **JOB)


#: Rows by implementation and schedule, of which no two neighbours have the same formulas.
KINDS = (("nanotron", "1f1b", 1), ("torchtitan", "gpipe", 1), ("megatron", "1f1b", 1), ("nanotron", "gpipe", 1),
         ("torchtitan", "interleaved", 2), ("megatron", "interleaved", 2))
GROUPED: dict[str, list[Any]] = {
    "implementation": [kind[0] for kind in KINDS] * 2, "schedule": [kind[1] for kind in KINDS] * 2,
    "virtual_pipeline": [kind[2] for kind in KINDS] * 2, "micro_batch_size": [1] * 6 + [2] * 6,
    "pipeline_parallel": [2] * 12,
}


@pytest.mark.parametrize("function", [
    lambda table, **asked: evaluate(table, terms=TERMS[:3], num_gpus=8, **JOB, **asked),
    lambda table, **asked: fit_rows({name: column for name, column in table.items() if name != "micro_batch_size"},
                                    "micro_batch_size", num_gpus=8, **JOB, **asked),
], ids=["evaluate", "fit"])
def test_rows_are_evaluated_as_in_a_table_of_their_kind(function: Any) -> None:
    answer = function(GROUPED).read_all()
    computed = [name for name in answer.column_names if name not in GROUPED or name == "micro_batch_size"]
    assert answer["implementation"].to_pylist() == GROUPED["implementation"]
    for place, (implementation, schedule, chunks) in enumerate(KINDS):
        table = {"micro_batch_size": [1, 2], "pipeline_parallel": [2, 2]}
        alone = function(table, implementation=implementation, kernels={"schedule": schedule}, virtual_pipeline=chunks)
        mine = answer.take([place, place + 6]).select(computed).to_pylist()
        assert mine == alone.read_all().select(computed).to_pylist()
    assert len({*answer["peak"].to_pylist()[:6]}) >= 5  # two kinds may both have no answer


def test_all_terms_of_rows_by_schedule_are_those_that_all_have() -> None:
    table = {name: GROUPED[name] for name in ("implementation", "schedule", "virtual_pipeline", "pipeline_parallel")}
    answer = evaluate(table, terms="all", num_gpus=8, **JOB).read_all()
    assert "peak" in answer.column_names
    assert answer["peak"].to_pylist() == evaluate(table, terms="peak", num_gpus=8, **JOB).read_all()["peak"].to_pylist()


@pytest.mark.parametrize(("changed", "asked", "message"), [
    ({"schedule": ["1f1b"] * 5 + ["gpip"] * 7}, {}, r"schedule = 'gpip': must be one of .*\(row 5\); .*: gpipe"),
    ({"schedule": ["1f1b"] * 11 + [None]}, {}, r"schedule = 'None': must be one of .*\(row 11\)"),
    ({"schedule": pa.array([["1f1b"]] * 12)}, {}, r"schedule = 'list<.*': must be a column of names"),
    ({"schedule": [1] * 12}, {}, r"schedule = '1': must be one of .*\(row 0\)"),
    ({"implementation": ["megatrom"] * 12}, {}, r"implementation = 'megatrom': .*\(row 0\); nearest legal: megatron"),
    ({"micro_batch_size": [1] * 9 + [0] + [1] * 2}, {}, r"micro_batch_size = 0: must be an integer .*\(row 9\)"),
    ({}, {"implementation": "nanotron"}, "implementation = 'nanotron': must not be given both as a column and as"),
    ({}, {"virtual_pipeline": 2}, "virtual_pipeline = 2: must not be given both as a column and as a value"),
])
def test_a_wrong_row_of_several_kinds_is_named(changed: dict[str, Any], asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(pa.table({**GROUPED, **changed}), num_gpus=8, **JOB, **asked).read_all()


def test_a_stream_has_rows_of_one_kind() -> None:
    table = pa.table({"pipeline_parallel": [2, 2], "schedule": ["1f1b", "gpipe"]})
    with pytest.raises(InputError, match=r"schedule = 'gpipe': must be 1f1b .*\(row 1\); nearest legal: --kernel"):
        evaluate(table.to_reader(), num_gpus=8, **JOB).read_all()
    with pytest.raises(InputError, match="column = 'implementation': must be in a table that has rows and can be read"):
        evaluate(pa.table(GROUPED).to_reader(), num_gpus=8, **JOB)


def test_another_schedule_than_that_asked_for_is_refused() -> None:
    table = {"pipeline_parallel": [2, 2], "schedule": ["1f1b", "gpipe"]}
    for kernels in ({"schedule": "1f1b"}, None):
        with pytest.raises(InputError, match="schedule = 'gpipe': must be "):
            evaluate(table, kernels=kernels, num_gpus=8, **JOB).read_all()
        with pytest.raises(InputError, match="schedule = 'gpipe': must be "):
            fit_rows(table, "micro_batch_size", kernels=kernels, num_gpus=8, **JOB).read_all()
