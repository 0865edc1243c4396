"""Tables solved row by row against single answers, and what is refused."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracles.extent import FULL
from pyarrow import parquet

from shardmath.cli.main import exit_code
from shardmath.commands.fit import fit
from shardmath.commands.fit.rows import fit_rows
from shardmath.errors import InputError

LAYOUTS = np.array(list(product((1, 2, 4, 8), (1, 2, 4, 5), (1, 3))))
TABLE: dict[str, Any] = {"tensor_parallel": LAYOUTS[:, 0], "pipeline_parallel": LAYOUTS[:, 1],
                         "data_parallel": LAYOUTS[:, 2], "note": np.array(["kept"] * len(LAYOUTS))}
COMPILES = pytest.mark.skipif(not FULL, reason="compiles another inverse: ORACLES=full")
QUESTIONS = [
    ("micro_batch_size", {"implementation": "nanotron"}),
    ("micro_batch_size", {"global_batch_size": 720, "seq_length": 4096, "implementation": "nanotron"}),
    pytest.param("micro_batch_size", {}, marks=COMPILES),
    pytest.param("micro_batch_size", {"global_batch_size": 720, "recompute": "full"}, marks=COMPILES),
    pytest.param("data_parallel", {"global_batch_size": 720, "implementation": "nanotron"}, marks=COMPILES),
    pytest.param("data_parallel", {"global_batch_size": 720}, marks=COMPILES),
    pytest.param("seq_length", {"recompute": "full"}, marks=COMPILES),
    pytest.param("num_layers", {}, marks=COMPILES),
]


@pytest.mark.slow
@pytest.mark.parametrize(("symbol", "values"), QUESTIONS)
def test_rows_are_what_single_configurations_are(symbol: str, values: dict[str, Any]) -> None:
    table = {name: column for name, column in TABLE.items() if name != symbol}
    answers = fit_rows(table, symbol, "llama-3.1-8b", "h100-80gb", **values).read_all()
    assert answers.column_names == [*table, symbol, "peak"]
    solved = 0
    for row in answers.to_pylist():
        layout = {name: int(row[name]) for name in table if name != "note"}
        try:
            alone = fit("llama-3.1-8b", "h100-80gb", symbol, formulas=False, **layout, **values)[symbol].at
        except InputError:  # an illegal layout has no answer
            alone = None
        assert (row[symbol], row["peak"]) == ((None, None) if alone is None else (alone.value, alone.peak)), row
        assert row["note"] == "kept"
        solved += alone is not None
    assert solved > 3


@pytest.mark.slow
def test_a_limit_that_moves_with_the_symbol_is_that_of_the_answer() -> None:
    asked: dict[str, Any] = {"implementation": "torchtitan", "seq_length": 2048}
    sizes = [8, 64]
    answers = fit_rows({"data_parallel": sizes}, "num_layers", "llama-3.2-1b", "h100-80gb", **asked).read_all()
    alone = [fit("llama-3.2-1b", "h100-80gb", "num_layers", formulas=False, num_gpus=size, **asked)["num_layers"].at
             for size in sizes]
    assert [(row["num_layers"], row["peak"]) for row in answers.to_pylist()] == [
        (one.value, one.peak) for one in alone if one is not None]


@pytest.mark.slow
def test_memory_may_differ_from_row_to_row() -> None:
    sizes = np.array([24, 40, 80, 141]) * 2**30
    answers = fit_rows({"gpu_memory": sizes}, "micro_batch_size", "llama-3.2-1b", share="1.0", tensor_parallel=4,
                       implementation="nanotron", node_size=8).read_all()
    found = answers.column("micro_batch_size").to_pylist()
    assert found == sorted(found)
    for size, value, peak in zip(sizes, found, answers.column("peak").to_pylist(), strict=True):
        alone = fit("llama-3.2-1b", "h100-80gb", "micro_batch_size", share="1.0", tensor_parallel=4, formulas=False,
                    implementation="nanotron", node_size=8)
        slope = alone["micro_batch_size"].polynomial
        assert slope is not None
        assert peak <= size < peak + 2 * slope[1]
        assert value >= 1


@pytest.mark.slow
def test_the_command_writes_a_table_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet.write_table(pa.table(TABLE), tmp_path / "in.parquet")
    out = tmp_path / "out.parquet"
    command = ["fit", "llama-3.1-8b", "--gpu", "h100-80gb", "--solve", "micro_batch_size", "--seq-length", "4096",
               "--implementation", "nanotron", "--table", str(tmp_path / "in.parquet"), "-o"]
    assert exit_code([*command, str(out)]) == 0
    written = parquet.read_table(out).column("micro_batch_size")
    solved = len(written) - written.null_count
    assert 0 < solved < len(written) == 32
    assert f"32 rows, {solved} with an answer for micro_batch_size" in capsys.readouterr().out
    assert exit_code([*command, str(tmp_path / "out.csv")]) == 2
    assert "must end with .parquet" in capsys.readouterr().err
    assert exit_code([*command, str(out), "--gradients", "bf16"]) == 2
    assert "gradients = 'bf16': must not be given with --table" in capsys.readouterr().err


@pytest.mark.parametrize(("table", "symbol", "values", "field"), [
    (TABLE, "hidden_size", {}, "solve"), (TABLE, "micro_batch_size", {"micro_batch_size": 2}, "micro_batch_size"),
    ({"micro_batch_size": np.ones(3)}, "micro_batch_size", {}, "column"),
    ({"tensor_parallel": np.ones(3)}, "data_parallel", {}, "global_batch_size"),
])
def test_what_rows_cannot_be_solved_for_is_said(
    table: dict[str, Any], symbol: str, values: dict[str, int], field: str,
) -> None:
    with pytest.raises(InputError) as refused:
        fit_rows(table, symbol, "llama-3.1-8b", "h100-80gb", **values)
    assert refused.value.field == field
