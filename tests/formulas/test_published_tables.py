"""Tables of publications beside the formulas that the same publications give."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.published import Figure, all_published

DATA = Path(__file__).parents[1] / "data"
SETS = {item.name: item for item in all_published()}
GB = 10**9


#: What all models of Narayanan et al. share.
GPT = {"s": 2048, "u": 51200, "g": 1, "t": 1}


def rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def assert_printed(term: str, values: dict[str, int], printed: str, size: int) -> None:
    """Compare the value of a term with the digits that its source prints."""
    terms = SETS[term.partition(".")[0]].terms
    value = evaluate(terms.closure([term]), values)[term]
    assert Figure(term, values, printed, "", size, "table").agrees(value), (term, values, printed, float(value / size))


@pytest.mark.parametrize("stage", ["zero1", "zero2", "zero3"])
def test_rajbhandari_table_1(stage: str) -> None:
    cells = 0
    for row in rows("rajbhandari2020_table1.csv"):
        values = {"Psi": int(row["parameters"]), "D": int(row["data_parallel"])}
        assert_printed(f"rajbhandari2020.{stage}", values, row[stage], GB)
        cells += 1
    assert cells == 18


def test_narayanan_table_1() -> None:
    every = [*rows("narayanan2021_table1.csv")]
    for row in every:
        values = {**GPT, "h": int(row["hidden_size"]), "L": int(row["num_layers"])}
        assert_printed("narayanan2021.parameters", values, row["parameters_billion"], 10**9)
    assert len(every) == 10


def test_narayanan_table_2() -> None:
    """Days for 300 billion tokens follow from the FLOPs of an iteration; 8 T P / (n X) is up to 3 % less."""
    every = [*rows("narayanan2021_table2.csv")]
    for row in every:
        values = {
            **GPT, "h": int(row["hidden_size"]), "L": int(row["num_layers"]), "B": int(row["batch"]),
            "N": int(row["gpus"]), "X": int(row["teraflops"]) * 10**12, "T": 300 * 10**9,
        }
        assert_printed("narayanan2021.flops_time", values, row["days"], 86_400)
        terms = SETS["narayanan2021"].terms
        exact = evaluate(terms.closure(["narayanan2021.flops_time", "narayanan2021.parameters"]), values)
        values["Psi"] = exact["narayanan2021.parameters"]
        rule = evaluate(terms.closure(["narayanan2021.training_time"]), values)["narayanan2021.training_time"]
        assert 0.97 < rule / exact["narayanan2021.flops_time"] < 1
    assert len(every) == 12
