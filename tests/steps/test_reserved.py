"""Reserved memory by the formula of searches: by hand, its range, its fit, and what a measured run makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from shardmath import explain
from shardmath.account.configured import configured
from shardmath.compiler.evaluators import terms_at
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.reserved import BEYOND, KINDS, Reserved, Share
from validation.measured.replayed_layouts import LAYOUTS
from validation.measured.reserved import Fitted, Row, fitted, kind_of, reserved_of

GIB = 2**30


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "huggingface"))
                                  for name in IMPLEMENTATIONS])
@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_the_formula_is_a_share_of_what_is_allocated_and_of_a_moment(name: str, tensor: int) -> None:
    tensor = 1 if name == "huggingface" else tensor
    asked: dict[str, Any] = {"implementation": name, "tensor_parallel": tensor, "num_gpus": 16, "global_batch_size": 16,
                             **({"distributed_optimizer": True} if name == "nanotron" else {})}
    known, job = explain("llama-3.1-8b", "h100-80gb", **asked), configured("llama-3.1-8b", "h100-80gb", **asked).job
    reserved, process = IMPLEMENTATIONS[name].reserved, known.process
    share = reserved.shares[{1: 0, 2: 1}.get(tensor, 2)]
    numbers = terms_at(job.evaluator.terms, job.on_rank(0))
    moment = sum(int(numbers.get(f"stage.{name}", 0)) for name in reserved.moment)
    assert (moment > 0) == bool(reserved.moment)
    streams = int(numbers[BEYOND]) if name == "torchtitan" else 0
    assert (streams > 0) == (BEYOND in numbers)
    usual = -(-(share.usual * (known.peak_bytes + streams) + reserved.weight * moment) // 1000)
    assert process.reserved == max(usual, known.peak_bytes)
    assert process.low["reserved"] == max(-(-usual * share.low // 1000), known.peak_bytes)
    assert process.high["reserved"] == -(-usual * share.high // 1000)


def test_a_measured_run_gives_back_what_it_reserved(tmp_path: Path) -> None:
    run = {"implementation": "nanotron", "tensor_parallel": 2, "num_gpus": 16, "global_batch_size": 32}
    peak = explain("llama-3.2-1b", "h100-80gb", **run).peak_bytes  # type: ignore[arg-type]
    path = tmp_path / "run.json"
    for reserved in (1.02, 1.4):
        measured = {"allocated_bytes": peak + GIB, "reserved_bytes": int(reserved * (peak + GIB))}
        path.write_text(json.dumps({"run": {"model": "llama-3.2-1b", "gpu": "h100-80gb", **run}, "measured": measured}))
        process = explain("llama-3.2-1b", "h100-80gb", anchor=path, **run).process  # type: ignore[arg-type]
        assert process.allocated == measured["allocated_bytes"]
        assert process.reserved == pytest.approx(measured["reserved_bytes"], rel=1e-3)
        assert process.low == process.high


def test_known_shares_are_found_again() -> None:
    draw, asked = Random(5), Fitted(700, (1040, 1100, 1200))
    rows = []
    for _ in range(600):
        kind, allocated, moment = draw.randrange(3), draw.randint(GIB, 80 * GIB), draw.randint(0, 20 * GIB)
        size = (asked.shares[kind] * allocated + asked.weight * moment) / 1000 * draw.uniform(0.96, 1.04)
        rows.append(Row("a", "b", kind, allocated // 2, allocated, moment, round(size)))
    refit = fitted(rows)
    assert abs(refit.weight - asked.weight) <= 40
    assert all(abs(own - known) <= 10 for own, known in zip(refit.shares, asked.shares, strict=True))
    careful = fitted(rows, low=3)
    assert np.mean(careful.predicted(rows) < 1) == pytest.approx(0.25, abs=0.05)  # the side that costs
    over = refit.predicted(rows)
    for place, share in enumerate(reserved_of(rows, refit)):
        sizes = [1000 / own for own, row in zip(over, rows, strict=True) if row.kind == place]
        inside = [share.low <= size <= share.high for size in sizes]
        assert 0.88 <= sum(inside) / len(inside) <= 0.95  # ends are rounded outwards


def test_a_framework_without_tensor_parallelism_has_one_share() -> None:
    draw = Random(6)
    rows = [Row("a", "b", 0, size, size, 0, round(1.05 * size)) for size in (draw.randint(GIB, 80 * GIB),) * 20]
    assert fitted(rows) == Fitted(0, (1050, 1050, 1050))


def test_layouts_that_judge_are_not_fitted_to() -> None:
    for name, layouts in LAYOUTS.items():
        draw = Random(3)
        drawn = [layouts.draw(draw) for _ in range(300)]
        assert all(layout["implementation"] == name for layout in (*layouts.fitting, *drawn))
        assert {layout["seq_length"] for layout in layouts.fitting}.isdisjoint(one["seq_length"] for one in drawn)


def test_kinds_begin_at_their_ranks() -> None:
    assert [kind_of(size) for size in (1, 2, 4, 8, 16)] == [0, 1, 2, 2, 2]
    assert len(KINDS) == 3


@pytest.mark.parametrize("share", [(999, 900, 1100), (1050, 1001, 1100), (1050, 900, 999)])
def test_a_share_that_cannot_be_is_refused(share: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="share of reserved memory"):
        Share(*share)


def test_shares_name_their_source_and_a_moment_has_a_weight() -> None:
    share = Share(1050, 950, 1100)
    for wrong in ({"source": "nobody"}, {"source": "pytorch", "moment": ("optimizer_step",)},
                  {"source": "pytorch", "weight": 5}):
        with pytest.raises(ValueError, match="reserved memory"):
            Reserved((share, share, share), **wrong)  # type: ignore[arg-type]
