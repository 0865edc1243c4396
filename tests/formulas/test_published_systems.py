"""Programs that authors of systems published, run or printed by them, beside the formulas typed in from them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import accumulate, groupby, pairwise
from pathlib import Path

import pytest
from sympy import Expr, Rational

from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.published import published_set

DATA = Path(__file__).parents[1] / "data"
MILLI, PICO, GIB = Rational(1, 1000), 10**12, 2**30
#: The layers that Metis measured: input, eight of a GPT, output, with their parameters, which it takes for bytes.
METIS_PARAMETERS = (393_216_000, *(202_383_360,) * 8, 393_220_096)
METIS_NODE = 4
#: GiB/s between nodes and inside of one, of the cluster file that Metis prints.
METIS_LINKS = (10, 46)


def rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def value(term: str, letters: Mapping[str, int | Rational]) -> Rational:
    """The exact value of one published term."""
    item = published_set(term.partition(".")[0])
    assert item is not None
    return evaluate(item.terms.closure([term]), letters)[term]


def exact(cell: str) -> Rational:
    return Rational(*Fraction(cell).as_integer_ratio())


def near(ours: Expr, theirs: str) -> None:
    """Compare with a number that a program computed in floating point."""
    assert float(ours) == pytest.approx(float(theirs), rel=1e-13)


def volumes(row: Mapping[str, str]) -> dict[str, Rational]:
    """Bytes that AxoNN's model lets a GPU send in each of its groups."""
    letters = {letter: int(row[letter]) for letter in ("L", "h", "B", "s", "t", "ty", "tz", "D")}
    return {group: value(f"singh2023.{group}", letters) for group in ("rows", "columns", "depth", "data")}


def test_axonn_chooses_these_grids() -> None:
    """The seconds of the four fastest grids, which divide volumes by the program's table of bandwidths."""
    every = [*rows("singh2023_grids.csv")]
    assert len(every) == 48
    for row in every:
        seconds = sum(sent / (Rational(row[f"{group}_gib"]) * GIB) for group, sent in volumes(row).items() if sent)
        near(seconds, row["seconds"])
    for _, fastest in groupby(every, key=lambda row: (row["machine"], row["model"], row["N"], row["B"])):
        assert all(float(left["seconds"]) <= float(right["seconds"]) for left, right in pairwise(fastest))


def test_pipette_estimates_these_steps() -> None:
    """Seconds of a step and of its parts, with given passes, on equal links as the program's command names them."""
    every = [*rows("yim2024_estimates.csv")]
    assert len(every) == 10
    for row in every:
        letters: dict[str, int | Rational] = {letter: int(row[letter]) for letter in ("B", "b", "t", "p", "D")}
        letters |= {"s": 1024, "h": 3072, "u": 50256, "L": 64, "dom": 8, "Yp": 25 * 10**9, "Yd": 25 * 10**9,
                    "Wn": 600 * 10**9, "yf": int(row["forward_ms"]) * MILLI, "yb": int(row["backward_ms"]) * MILLI}
        near(value("yim2024.passing", letters) / MILLI, row["passing_ms"])
        near(value("yim2024.data", letters) / MILLI, str(float(row["inner_ms"]) + float(row["outer_ms"])))
        near(value("yim2024.step", letters) / MILLI, row["step_ms"])


def shares(stages: int) -> list[tuple[int, int]]:
    """First layer of each of Metis's equal stages, and the one behind its last."""
    counts = [8 // stages] * stages
    counts[0] += 1
    counts[-1] += 1
    ends = [*accumulate(counts)]
    return [*zip([0, *ends], ends, strict=False)]


def test_metis_prints_these_costs() -> None:
    """The costs of every printed plan whose layers are in the published samples.

    They were computed without the length of a sequence, so that messages between stages are empty in them.
    """
    measured = {(row["t"], row["b"]): row for row in rows("um2024_layers.csv")}
    once = measured["1", "1"]  # what the planner takes from the first file that it reads
    costs = [*rows("um2024_costs.csv")]
    assert len(costs) == 26
    for row in costs:
        layers = measured[row["t"], row["b"]]
        times = [exact(layers[name]) for name in ("first_ms", *("layer_ms",) * 8, "last_ms")]
        t, p, D = (int(row[letter]) for letter in "tpD")
        stages = shares(p)
        seconds = [sum(times[first:end]) * MILLI for first, end in stages]
        spans = [(rank * t * D // METIS_NODE, ((rank + 1) * t * D - 1) // METIS_NODE) for rank in range(p)]
        link = METIS_LINKS[all(first == last for first, last in spans)]
        letters: dict[str, int | Rational] = {
            "B": int(row["B"]), "b": int(row["b"]), "D": D, "p": p, "s": 0, "h": 4096, "Yp": 1,
            "Tx": max(seconds) * PICO, "Ta": sum(seconds) * PICO,
            "To": 2 * exact(once["optimizer_ms"]) * MILLI * PICO / (p * t),
            "yt": (exact(layers["passes_ms"]) - sum(times) + exact(once["batch_ms"])) * MILLI,
            "Yg": Rational(max(sum(METIS_PARAMETERS[first:end]) for first, end in stages), t),
            "Yd": link * GIB,
        }
        near(value("um2024.step", letters) / MILLI, row["ms"])
