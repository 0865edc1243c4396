"""Rows of a sweep: all of them, once, with exact values, in an order that does not depend on who swept."""

from __future__ import annotations

import csv
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
import small_space
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from interpreted import interpreted
from searches.test_nests_random import AMONG, Drawn, Made, Source, rows_of

from shardmath.commands.explore import rows as writing
from shardmath.commands.explore.run import explore
from shardmath.compiler.expressions import ops
from shardmath.compiler.nests import problem as posed
from shardmath.compiler.nests.problem import ESTIMATE
from shardmath.errors import InputError
from shardmath.search.nests import answers
from shardmath.search.nests.columns import ColumnNest
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.rows import Folder, Table, regrouped
from shardmath.search.nests.running import run
from shardmath.search.spaces import Part, Rows

pytestmark = pytest.mark.slow

TERMS = ("first.total", "data_parallel", "first.total / 2**30")


def _written(path: Path, threads: int = 2) -> Path:
    explore(small_space.space(), rows=path, terms=TERMS, among="uncertain", threads=threads)
    return path


@pytest.mark.slow
def test_every_configuration_asked_for_has_one_row(tmp_path: Path) -> None:
    found = pq.read_table(_written(tmp_path / "rows.parquet")).to_pylist()
    counted = small_space.counted()
    expected = [
        {**row, "part": 0, "first.total / 2**30": row["first.total"] / 2**30}  # type: ignore[operator]
        for row in counted["fits"] + counted["uncertain"]
    ]
    assert len(found) == len(expected) > 1000
    by_number = sorted(found, key=lambda row: row["number"])
    assert by_number == sorted(expected, key=lambda row: row["number"])  # type: ignore[arg-type, return-value]


def test_files_do_not_depend_on_threads_and_csv_has_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "GROUP", 200)
    one = _written(tmp_path / "one.parquet", threads=1)
    three = _written(tmp_path / "three.parquet", threads=3)
    assert one.read_bytes() == three.read_bytes()
    stored = pq.ParquetFile(one)
    groups = [stored.metadata.row_group(number).num_rows for number in range(stored.num_row_groups)]
    assert groups[:-1] == [200] * (len(groups) - 1)
    assert len(groups) > 3
    text = _written(tmp_path / "rows.csv")
    with text.open(newline="", encoding="utf-8") as file:
        listed = list(csv.DictReader(file))
    assert listed == [{name: str(value) for name, value in row.items()} for row in stored.read().to_pylist()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.parquet", "rows.csv", "three.parquet"]


def test_bytes_are_integers_and_labels_texts(tmp_path: Path) -> None:
    schema = pq.read_schema(_written(tmp_path / "rows.parquet"))
    kinds = {field.name: str(field.type) for field in schema}
    assert {kinds[name] for name in ("number", "num_gpus", "peak_bytes", "first.total", "data_parallel")} == {"int64"}
    assert kinds["first.total / 2**30"] == "double"
    assert kinds["recompute"].startswith("dictionary<values=string")


def test_rows_of_stretches_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_ROOM", 1)  # a front that grows: its stretch is swept again
    space = small_space.space()
    nest = CompiledNest(space.parts()[0], (*space.questions, Rows("rows", TERMS, "uncertain")))
    whole = nest.table(0, nest.shards)
    assert whole is not None
    answer = nest.swept(0, nest.shards, nest.empty(), whole)
    tables: dict[int, Table] = {}
    other = run(nest, threads=2, on_rows=lambda start, _, table: tables.update({start: table})).answer
    numbers = np.concatenate([tables[start].numbers for start in sorted(tables)])
    assert len(tables) > 10
    assert (numbers == whole.numbers[: len(whole)]).all()
    assert len(whole) == answer.verdicts[:2].sum() == other.verdicts[:2].sum()


def compare_rows(data: st.DataObject, made: Made) -> None:
    """The rows of a random problem, shard after shard, which must be all that belong to the question."""
    drawn = Drawn(data.draw)
    graph = drawn.graph
    estimate, limit = graph.name(ESTIMATE), graph.name("limit")
    among = data.draw(st.sampled_from(tuple(AMONG)))
    keys = tuple(drawn.quantity(2) for _ in range(data.draw(st.integers(0, 2))))
    asked = Rows("rows", tuple(f"key{number}" for number in range(len(keys))), among)
    verdicts = tuple(graph.binary(ops.LE, graph.mul([graph.number(count), estimate]), limit) for count in (2, 1))
    axes = tuple(posed.NestAxis(axis.name, tuple(axis.values), axis.size) for axis in drawn.axes)
    question = posed.Rows("rows", (estimate, *keys), AMONG[among])
    conditions = tuple(item for item in drawn.conditions if item[1] is not graph.truth(True))
    problem = posed.Problem(graph, axes, conditions, drawn.peak, verdicts, (question,))
    size = int(np.prod([axis.size for axis in drawn.axes]))
    part = Part(cast(Any, None), 0, {}, tuple(drawn.axes), drawn.fixed, {}, (), size)
    nest = made(part, [asked], Source(problem))
    last = {"fits": 0, "uncertain": 1, "legal": 2}[among]
    expected = {
        row.index: (row.verdict, row.keys["rows"])
        for row in rows_of(drawn, problem, [asked], [name for name, _ in conditions])
        if row.keys is not None and row.verdict is not None and row.verdict <= last
    }
    found = {}
    for start in range(nest.shards):
        table = nest.table(start, start + 1)
        assert table is not None
        nest.swept(start, start + 1, nest.empty(), table)
        part_of = zip(table.numbers, table.verdicts, table.values, strict=True)
        rows = [(int(number), (int(verdict), tuple(values))) for number, verdict, values in part_of][: len(table)]
        assert not found.keys() & dict(rows).keys()
        found |= dict(rows)
    assert found == expected


@pytest.mark.slow
@settings(max_examples=60, phases=(Phase.reuse, Phase.generate))
@given(data=st.data())
def test_rows_of_random_nests_are_all_that_belong(data: st.DataObject) -> None:
    literal = data.draw(st.sampled_from((True, False, None)))
    compare_rows(data, lambda part, asked, source: ColumnNest.of_problem(part, asked, source.problem)
                 if literal is None else CompiledNest(part, asked, interpreted(source(literal=literal)), getattr))


@pytest.mark.slow
def test_a_nest_is_sent_by_its_source(tmp_path: Path) -> None:
    nest = CompiledNest(small_space.space().parts()[0], (*small_space.QUESTIONS, Rows("rows", TERMS, "uncertain")))
    sent = tmp_path / "nest.pickle"
    sent.write_bytes(pickle.dumps(nest))
    code = """
import os, pathlib, pickle, sys
nest = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
assert nest.module.__file__.startswith(sys.argv[2]), nest.module.__file__
print(nest.module.sweep.__code__.co_argcount, nest.shards, nest.conditions)
"""
    cache = tmp_path / "cache"
    result = subprocess.run(
        [sys.executable, "-c", code, str(sent), str(cache)], capture_output=True, text=True, check=True,
        env={"XDG_CACHE_HOME": str(cache), "PATH": ""},
    )
    expected = nest.module.sweep.__code__.co_argcount
    assert result.stdout.strip() == f"{expected} {nest.shards} {nest.conditions}"


@pytest.mark.parametrize(("arguments", "field"), [
    ({"rows": "rows.txt"}, "rows"), ({"rows": "no-such-folder/rows.csv"}, "rows"), ({"terms": ("peak",)}, "terms"),
    ({"rows": "rows.csv", "terms": ("no_such_term",)}, "questions.rows.rows"),
    ({"rows": "rows.csv", "terms": ("peak", "peak")}, "rows"), ({"rows": "rows.csv", "among": "all"}, "rows.among"),
    ({"threads": 0}, "threads"), ({"threads": 2, "dask": "tcp://127.0.0.1:9"}, "threads"),
])
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object], field: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        explore(small_space.space(), **arguments)  # type: ignore[arg-type]
    assert field in refused.value.field
    assert list(tmp_path.iterdir()) == []


def _table(numbers: list[int]) -> Table:
    count = len(numbers)
    column = np.array(numbers, np.int64)
    return Table(column, np.zeros(count, np.int8), column[:, None] + 0.5, np.array([count]))


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(0, 99), max_size=7)), st.integers(1, 9))
def test_regrouped_tables_have_the_same_rows(lists: list[list[int]], rows: int) -> None:
    found = list(regrouped(map(_table, lists), rows))
    assert [number for table in found for number in table.numbers] == [number for part in lists for number in part]
    assert all((table.values[:, 0] == table.numbers + 0.5).all() for table in found)
    assert all(len(table) == rows for table in found[:-1])
    assert all(0 < len(table) <= rows for table in found)


def test_a_folder_keeps_what_is_done_and_nothing_else(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "rows")
    for part, start, stop in ((0, 0, 4), (0, 4, 8), (0, 8, 16), (1, 0, 2), (1, 2, 4)):
        folder.add(part, start, stop, _table([part, start, stop]))
    folder.add(1, 4, 6, _table([]))
    (folder.path / f".{0:06d}-{8:020d}.half.partial").write_bytes(b"PK")
    folder.keep([[(0, 8)], [(2, 4)]])
    assert [list(table.numbers) for table in folder.tables(0)] == [[0, 0, 4], [0, 4, 8]]
    assert [list(table.numbers) for table in folder.tables(1)] == [[1, 2, 4]]
    (folder.path / "thesis.tex").write_text("what somebody else has put there")
    with pytest.raises(InputError, match=r"thesis\.tex is none of them"):
        folder.remove()
    (folder.path / "thesis.tex").unlink()
    folder.remove()
    assert not folder.path.exists()
