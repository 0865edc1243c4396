"""Every kind of table gives the same answer, in order, with what is no parameter passed through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmath import InputError, evaluate, explain

pa = pytest.importorskip("pyarrow")
csv, dataset, feather, parquet = (
    pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "dataset", "feather", "parquet")
)

COLUMNS: dict[str, Any] = {
    "tensor_parallel": [1, 2, 4, 8, 3], "pipeline_parallel": [2, 1, 4, 2, 1], "sequence_parallel": [0, 1, 0, 1, 1],
    "recompute": ["none", "full", "mlp", "core_attention+mlp", "none"], "run": ["a", "b", "c", "d", "e"],
}
QUESTION: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-80gb", "num_gpus": 64, "global_batch_size": 256}
TABLE = pa.table(COLUMNS)


class OnlyStream:
    """A data frame of a library that nobody has installed."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


class OnlyInterchange:
    """A data frame with the older protocol alone."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return TABLE.__dataframe__(nan_as_null, allow_copy)


def structured() -> np.ndarray[Any, Any]:
    kinds = [(name, "U20" if isinstance(values[0], str) else np.int32) for name, values in COLUMNS.items()]
    return np.array(list(zip(*COLUMNS.values(), strict=True)), dtype=kinds)


def pandas_frame() -> Any:
    return pytest.importorskip("pandas").DataFrame(COLUMNS)


def pandas_categories() -> Any:
    return pandas_frame().astype({"recompute": "category", "sequence_parallel": bool, "tensor_parallel": float})


def polars_frame() -> Any:
    return pytest.importorskip("polars").DataFrame(COLUMNS)


def polars_categories() -> Any:
    polars = pytest.importorskip("polars")
    return polars_frame().with_columns(polars.col("recompute").cast(polars.Categorical))


IN_MEMORY: dict[str, Callable[[], Any]] = {
    "lists": lambda: COLUMNS,
    "NumPy columns": lambda: {name: np.asarray(values) for name, values in COLUMNS.items()},
    "strided columns": lambda: {name: np.repeat(values, 2)[::2] for name, values in COLUMNS.items()},
    "structured array": structured,
    "Arrow table": lambda: TABLE,
    "Arrow table in pieces": lambda: pa.concat_tables([TABLE.slice(0, 2), TABLE.slice(2, 0), TABLE.slice(2)]),
    "record batch": lambda: TABLE.combine_chunks().to_batches()[0],
    "reader": lambda: TABLE.to_reader(max_chunksize=2),
    "dataset": lambda: dataset.dataset(TABLE),
    "stream protocol": OnlyStream,
    "interchange protocol": OnlyInterchange,
    "pandas": pandas_frame, "pandas with categories": pandas_categories,
    "polars": polars_frame, "polars with categories": polars_categories,
}


def written(kind: str, folder: Path) -> Path:
    path = folder / f"table.{kind}"
    if kind == "parquet":
        parquet.write_table(TABLE, path, row_group_size=2)
    elif kind == "csv":
        csv.write_csv(TABLE, path)
    elif kind == "feather":
        feather.write_feather(TABLE, str(path), chunksize=2)
    elif kind == "arrows":
        with pa.ipc.new_stream(path, TABLE.schema) as stream:
            stream.write_table(TABLE, 2)
    else:
        path.mkdir()
        for number in range(5):
            parquet.write_table(TABLE.slice(number, 1), path / f"{number}.parquet")
    return path


def check(answer: Any) -> None:
    rows = answer.to_pylist()
    assert [row["run"] for row in rows] == COLUMNS["run"]
    for place, row in enumerate(rows[:4]):
        found = explain(**{name: values[place] for name, values in COLUMNS.items() if name != "run"}, **QUESTION)
        assert row["rule"] is None
        assert row["verdict"] == found.peak.verdict
        assert row["peak"] == found.peak.total
        assert (row["first.total"], row["last.total"]) == (found.ranks[0].total, found.ranks[-1].total)
    assert rows[4]["rule"] == "gpus"
    assert rows[4]["rule_text"] == (
        "num_gpus must equal tensor_parallel * context_parallel * pipeline_parallel * data_parallel")
    assert [rows[4][name] for name in ("verdict", "first.total", "last.total", "peak")] == [None] * 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", IN_MEMORY)
def test_every_kind_of_table_in_memory(kind: str) -> None:
    check(evaluate(IN_MEMORY[kind](), **QUESTION).read_all())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "csv", "feather", "arrows", "folder"])
def test_every_kind_of_file(kind: str, tmp_path: Path) -> None:
    path = written(kind, tmp_path)
    check(evaluate(path, **QUESTION).read_all())
    check(evaluate(str(path), **QUESTION).read_all())


@pytest.mark.slow
def test_columns_that_are_no_parameters_stay_as_they_are() -> None:
    others = {"note": [None, "x"], "nested": [[1], [2, 3]], "when": [0.5, None]}
    answer = evaluate(pa.table({"num_gpus": [8, 16], **others}), "llama-3.1-8b", "h100-80gb").read_all()
    assert answer.select(list(others)).equals(pa.table(others))
    assert answer.schema.metadata[b"passed through"] == b"note\nnested\nwhen"


@pytest.mark.slow
def test_objects_of_numpy_have_the_type_of_all_rows() -> None:
    notes = np.array([None] * 5 + ["x"], dtype=object)
    answer = evaluate({"num_gpus": [8] * 6, "note": notes}, "llama-3.1-8b", "h100-80gb").read_all()
    assert answer["note"].to_pylist() == [None] * 5 + ["x"]
    with pytest.raises(InputError, match="that Arrow can hold"):
        evaluate({"num_gpus": [8] * 2, "note": np.array([1, "x"], dtype=object)}, "llama-3.1-8b", "h100-80gb")


@pytest.mark.slow
def test_the_schema_says_units_and_meanings() -> None:
    reader = evaluate({"num_gpus": [8]}, "llama-3.1-8b", "h100-80gb", terms=["peak", "swiglu.saved"])
    assert reader.schema.names == ["num_gpus", "rule", "rule_text", "verdict", "rule_80", "peak", "swiglu.saved"]
    assert {reader.schema.field(name).type for name in ("peak", "swiglu.saved")} == {pa.int64()}
    assert reader.schema.field("peak").metadata[b"unit"] == b"bytes"
    assert b"SwiGLU" in reader.schema.field("swiglu.saved").metadata[b"meaning"]


@pytest.mark.slow
def test_a_table_without_rows_and_one_without_parameters() -> None:
    assert evaluate(TABLE.slice(0, 0), **QUESTION).read_all().num_rows == 0
    rows = evaluate({"run": [1, 2]}, "llama-3.1-8b", "h100-80gb").read_all().to_pylist()
    assert {row["peak"] for row in rows} == {explain("llama-3.1-8b", "h100-80gb").peak.total}


@pytest.mark.slow
def test_batches_of_any_size_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate(TABLE, **QUESTION).read_all()
    for size in (1, 2, 4):
        monkeypatch.setattr("shardmath.commands.evaluate.run._ROWS", size)
        batches = list(evaluate(TABLE.to_reader(max_chunksize=3), **QUESTION))
        assert max(batch.num_rows for batch in batches) <= size
        assert pa.Table.from_batches(batches).to_pylist() == whole.to_pylist()


@pytest.mark.slow
def test_progress_is_told_rows() -> None:
    told: list[tuple[int, int | None]] = []
    list(evaluate(TABLE, **QUESTION, progress=lambda done, count: told.append((done, count))))
    list(evaluate(TABLE.to_reader(), **QUESTION, progress=lambda done, count: told.append((done, count))))
    assert told == [(5, 5), (5, None)]


@pytest.mark.parametrize("table", [5, None, [1, 2], np.arange(3), "nowhere.parquet", "table.xlsx", {}], ids=str)
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(table, **QUESTION)
    assert caught.value.field == "table"


@pytest.mark.slow
def test_terms_of_time_stand_beside_those_of_memory() -> None:
    found = evaluate(TABLE, **QUESTION, terms=("step.time", "peak", "spent.tensor")).read_all()
    assert [found.schema.field(name).type for name in ("step.time", "peak")] == [pa.float64(), pa.int64()]
    assert found.schema.field("step.time").metadata[b"unit"] == b"s"
    for row in found.to_pylist():
        layout = {name: row[name] for name in COLUMNS if name != "run"}
        if row["rule"] is None:
            account = explain(**QUESTION, **layout)
            assert account.time is not None
            assert row["peak"] == account.peak.total
            assert row["step.time"] == pytest.approx(account.time.seconds, rel=1e-12)
        else:
            assert row["step.time"] is row["peak"] is None


@pytest.mark.slow
def test_time_needs_speeds() -> None:
    with pytest.raises(InputError, match="must be given: as a column, as a value, or with a model or a GPU"):
        evaluate(TABLE, "llama-3.1-8b", terms=["step.time"], num_gpus=64, global_batch_size=256, gpu_memory=80 << 30)
