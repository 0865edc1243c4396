"""What pictures of a sweep keep of its layouts: the same as from all of them at once, however they stream by."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from operator import le
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardmath import Gpu, explain, sweep
from shardmath.cli.main import exit_code
from shardmath.commands.sweep import plot as swept
from shardmath.commands.sweep.gathered import Gathered
from shardmath.errors import InputError
from shardmath.search.legal import NAMES

pytestmark = pytest.mark.slow

JOB: dict[str, Any] = {"num_gpus": 16, "global_batch_size": 32, "seq_length": 4096}
VERDICTS = ("fits", "uncertain", "out of memory")
LINES = {"fits": "best that fit", "uncertain": "best that are uncertain"}


def gathered(gpu: Gpu | str = "a100-40gb", **options: Any) -> tuple[Gathered, list[dict[str, Any]], Any]:
    """What was gathered, and all layouts one by one."""
    found, layouts = Gathered(), []

    def on_layouts(columns: Any) -> None:
        found(columns)
        rows = zip(*(columns[name].tolist() for name in NAMES), strict=True)
        layouts.extend(dict(zip(NAMES, values, strict=True)) for values in rows)

    return found, layouts, sweep("llama-3.2-1b", gpu, **{**JOB, **options}, on_layouts=on_layouts)


def test_seconds_of_a_layout_are_those_of_explain() -> None:
    _, layouts, _ = gathered()
    for layout in layouts[:: len(layouts) // 7]:
        same = ("tensor_parallel", "context_parallel", "pipeline_parallel", "micro_batch_size", "recompute",
                "virtual_pipeline", "account_for_embedding", "account_for_loss", "last_stage_layers")
        account = explain("llama-3.2-1b", "a100-40gb", **JOB, **{name: layout[name] for name in same},
                          sequence_parallel=bool(layout["sequence_parallel"]))
        assert account.time is not None
        assert layout["step_seconds"] == pytest.approx(account.time.seconds, rel=1e-9)
        assert layout["peak_bytes"] == account.peak.total


def point(layout: Mapping[str, Any]) -> tuple[int, float, int]:
    return VERDICTS.index(layout["verdict"]), layout["step_seconds"], layout["peak_bytes"]


def test_best_of_each_cell_and_front_by_brute_force() -> None:
    found, layouts, answer = gathered()
    assert found.count == len(layouts) == answer.legal
    for (t, p), best in found.best.items():
        cell = [one for one in layouts if (one["tensor_parallel"], one["pipeline_parallel"]) == (t, p)]
        verdict = min(VERDICTS.index(one["verdict"]) for one in cell)
        rest = [one for one in cell if VERDICTS.index(one["verdict"]) == verdict]
        key = "step_seconds" if verdict == 0 else "peak_bytes"
        assert best["verdict"] == VERDICTS[verdict]
        assert best[key] == min(one[key] for one in rest)
    assert {*found.best} == {(one["tensor_parallel"], one["pipeline_parallel"]) for one in layouts}
    points = {point(one) for one in layouts}
    front = {one for one in points if not any(all(map(le, other, one)) and other != one for other in points)}
    assert {*map(point, found.front)} == front
    assert [*map(point, found.front)] == sorted(front)
    fastest = next(one for one in found.front if one["verdict"] == "fits")
    assert fastest["step_seconds"] == pytest.approx(answer.best[0].step_seconds)


@pytest.mark.parametrize("seq_length", [4096, 32768])
def test_a_line_runs_through_layouts_of_one_verdict_and_what_runs_out_has_none(seq_length: int) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    found, layouts, answer = gathered(seq_length=seq_length)
    swept.picture(answer, found).panels[1].draw(figure)
    lines = {item.get_label(): item for item in figure.axes[0].lines if str(item.get_label()).startswith("best")}
    drawn = {label: [*zip(line.get_ydata(), line.get_xdata(), strict=True)] for label, line in lines.items()}
    fronts = {LINES[verdict]: [(one["step_seconds"], one["peak_bytes"] / 2**30) for one in found.front
                               if one["verdict"] == verdict] for verdict in LINES}
    assert drawn == {label: front for label, front in fronts.items() if front}
    assert {line.get_linestyle() for line in lines.values()} == {"-", "--"}
    assert any(one["verdict"] == "out of memory" for one in layouts)


def columns(rows: list[tuple[int, int, int, int]]) -> dict[str, NDArray[Any]]:
    found = {name: np.ones(len(rows), np.int64) for name in NAMES}
    tensor, pipeline, seconds, peak = np.array(rows).T
    known = np.where(seconds > 0, seconds.astype(float), np.nan)
    return {**found, "tensor_parallel": tensor, "pipeline_parallel": pipeline, "step_seconds": known,
            "peak_bytes": peak, "recompute": np.full(len(rows), "none"),
            "verdict": np.asarray(VERDICTS)[np.digitize(peak, (4, 6))]}


ROWS = st.lists(st.tuples(st.sampled_from((1, 2)), st.sampled_from((1, 3)), st.integers(0, 5), st.integers(1, 8)),
                min_size=1, max_size=30)


@given(ROWS, st.integers(1, 7))
def test_it_does_not_matter_how_layouts_stream_by(rows: list[tuple[int, int, int, int]], step: int) -> None:
    whole, parts = Gathered(), Gathered()
    whole(columns(rows))
    for start in range(0, len(rows), step):
        parts(columns(rows[start:start + step]))

    def sizes(found: Gathered) -> tuple[object, ...]:
        best = {cell: (one["verdict"], one["peak_bytes"], str(one["step_seconds"])) for cell, one in found.best.items()}
        front = [point(one) for one in found.front]
        clouds = [sorted(zip(*map(np.ndarray.tolist, found.cloud(name)), strict=True)) for name in VERDICTS]
        return best, front, clouds, found.count

    assert sizes(whole) == sizes(parts)


def test_the_table_has_a_column_of_seconds(tmp_path: Path) -> None:
    job = ["sweep", "llama-3.2-1b", "--num-gpus", "8", "--global-batch-size", "16", "--csv"]
    assert exit_code([*job, str(tmp_path / "known.csv"), "--gpu", "a100-40gb"]) == 0
    assert exit_code([*job, str(tmp_path / "unknown.csv"), "--gpu-memory", "40"]) == 0
    for name, known in (("known", True), ("unknown", False)):
        rows = list(csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines()))
        assert all((float(row["step_seconds"]) > 0) if known else not row["step_seconds"] for row in rows)


def test_without_known_speeds_there_is_the_map_alone() -> None:
    pytest.importorskip("matplotlib")
    found, _, answer = gathered(Gpu.custom(40))
    assert found.front == []
    assert len(swept.picture(answer, found).panels) == 1


def test_no_legal_layout_is_nothing_to_show() -> None:
    found, layouts, answer = gathered(tensor_parallel=(8,), pipeline_parallel=(16,))
    assert layouts == []
    with pytest.raises(InputError, match="no layout is legal"):
        swept.picture(answer, found)
