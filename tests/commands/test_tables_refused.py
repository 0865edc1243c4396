"""Bad tables: one line that names the column, the row and what would be legal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmath import InputError, evaluate

pa = pytest.importorskip("pyarrow")
QUESTION: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-80gb"}
#: Column, its values, what the line must say.
WRONG_VALUES: dict[str, tuple[str, Any, str]] = {
    "missing": ("tensor_parallel", [1, 2, None], r"tensor_parallel = None: .* 1 to 2147483648 \(row 2\)"),
    "fraction": ("tensor_parallel", [1, 2.5], r"tensor_parallel = 2\.5: .*\(row 1\); nearest legal: 2"),
    "not a number": ("tensor_parallel", np.array([1, np.nan]), r"= nan: .*\(row 1\)"),
    "infinite": ("tensor_parallel", [1, float("inf")], r"= inf: .*\(row 1\)"),
    "zero": ("micro_batch_size", [4, 4, 0, 0], r"micro_batch_size = 0: .*\(row 2\); nearest legal: 1"),
    "negative": ("seq_length", [-1], r"seq_length = -1: .*\(row 0\); nearest legal: 1"),
    "large": ("seq_length", [2**62], r"seq_length = 4611686018427387904: .*\(row 0\); nearest legal: 2147483648"),
    "unsigned": ("seq_length", np.array([2**63], np.uint64), r"seq_length = 9223372036854775808: .*\(row 0\)"),
    "text": ("tensor_parallel", ["1", "2"], r"tensor_parallel = '1': must be an integer .*\(row 0\)"),
    "truth": ("tensor_parallel", [True, False], r"tensor_parallel = True: must be an integer .*\(row 0\)"),
    "switch": ("sequence_parallel", [0, 1, 2], r"sequence_parallel = 2: .*from 0 to 1 \(row 2\); nearest legal: 1"),
    "mode": ("recompute", ["none", "ful"], r"recompute = 'ful': .*\(row 1\); nearest legal: full"),
    "no mode": ("recompute", ["none", None], r"recompute = None: must be the name of a mode \(row 1\)"),
    "number of a mode": ("recompute", [[1], [2]], r"recompute = .*: must be a column of names of modes"),
    "selective": ("recompute", ["none", "selective"], r"recompute = 'selective': .*whole table \(row 1\)"),
    "experts": ("expert_parallel", [1, 1, 2], r"expert_parallel = 2: must be 1: .*\(row 2\); nearest legal: 1"),
    "rank": ("pipeline_rank", [0, 1], r"pipeline_rank = 1: must be below pipeline_parallel \(row 1\)"),
    "batch": ("seq_length", [2**31], r"row 0.*2\^49"),
}
WRONG_NAMES: dict[str, str] = {
    "tensor_paralel": "tensor_parallel", "Tensor-Parallel": "tensor_parallel", "tp": "tensor_parallel",
    "num_gpu": "num_gpus", "recompte": "recompute", "hiddensize": "hidden_size",
    "model": "whole table", "gradients": "whole table", "peak": "computed", "rule": "computed", "rule_text": "computed",
    "verdict": "computed",
    "num_microbatches": "follows from other parameters",
}


def message(table: Any, **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        evaluate(table, **{**QUESTION, **changes}).read_all()
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG_VALUES)
def test_a_wrong_value_is_named_with_its_row(case: str) -> None:
    name, values, line = WRONG_VALUES[case]
    table = pa.table({name: values})
    with pytest.raises(InputError, match=line) as caught:
        evaluate(table, **QUESTION, **({"global_batch_size": 2**19} if case == "batch" else {})).read_all()
    assert caught.value.field == ("table" if case == "batch" else name)


@pytest.mark.slow
def test_rows_are_counted_over_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardmath.commands.evaluate.run._ROWS", 3)
    reader = evaluate({"tensor_parallel": [1] * 10 + [0] + [1] * 5}, **QUESTION)
    assert len(reader.read_next_batch()) == 3
    with pytest.raises(InputError, match=r"\(row 10\)"):
        reader.read_all()


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_a_wrong_name_of_a_column(name: str) -> None:
    line = message({name: [1, 2]})
    assert line.startswith(f"column = {name!r}: ")
    assert WRONG_NAMES[name] in line


@pytest.mark.slow
def test_names_that_only_look_a_little_alike_pass() -> None:
    names = ("run", "loss", "tokens", "gpus_used", "step_time", "peak_bytes", "num")
    assert evaluate({name: [1] for name in names}, **QUESTION).read_all().num_rows == 1


def test_columns_that_exclude_each_other() -> None:
    assert "must be there once" in message(pa.table([[1], [1]], names=["num_gpus", "num_gpus"]))
    assert "recompute_mlp" in message({"recompute": ["none"], "recompute_mlp": [0]})
    assert "both as a column and as a value" in message({"num_gpus": [1]}, num_gpus=1)
    assert "both as a column and as a value" in message({"recompute": ["none"]}, recompute="none")
    assert "rows" in message({"num_gpus": [1, 2], "seq_length": [1]})


@pytest.mark.parametrize(
    ("values", "line"),
    [({"tensor_paralel": 2}, "nearest legal: tensor_parallel"), ({"tensor_parallel": 0}, "nearest legal: 1"),
     ({"recompute": "ful"}, "nearest legal: full"), ({"expert_parallel": 2}, "has no experts"),
     ({"terms": ["peek"]}, "nearest legal: peak"), ({"terms": "peek"}, "nearest legal: peak"),
     ({"implementation": "megatrom"}, "nearest legal: megatron"), ({"kernels": {"loss": "none"}}, "must be one of"),
     ({"sharded_weights": "yes"}, "must be an integer"), ({"num_microbatches": 2}, "must be a parameter")],
    ids=str,
)
def test_a_wrong_value_for_all_rows(values: dict[str, Any], line: str) -> None:
    assert line in message({"num_layers": [32]}, **values)


@pytest.mark.slow
@pytest.mark.parametrize(("without", "field"), [("model", "hidden_size"), ("gpu", "node_size")])
def test_what_nothing_gives_is_asked_for(without: str, field: str) -> None:
    with pytest.raises(InputError, match="must be given: as a column, as a value") as caught:
        evaluate({"num_gpus": [1]}, **{**QUESTION, without: None})
    assert caught.value.field == field


@pytest.mark.slow
def test_a_file_that_is_no_table(tmp_path: Any) -> None:
    for name in ("table.parquet", "table.arrow", "table.arrows"):
        (tmp_path / name).write_text("no table")
        assert "must be a table that can be read" in message(tmp_path / name)
    (tmp_path / "table.csv").write_text("num_gpus\n" + "1\n" * 600_000 + "one\n")
    assert "must be a table that can be read" in message(tmp_path / "table.csv")
