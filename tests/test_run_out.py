"""The probability of running out of memory: its formula, its limits, and what explain says."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from shardmath import explain, sweep
from shardmath.commands.explain.report import forecast_line
from shardmath.commands.sweep.report import show
from shardmath.generated.definitions import FORECASTS, forecast, run_out_probability
from shardmath.reports.tables import chance
from shardmath.symbolic.run_out import FITS_BELOW, process_limit

GIB = 2**30
SIZES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "micro_batch_size", "sequence_parallel",
         "virtual_pipeline", "first_stage_layers", "last_stage_layers", "account_for_embedding", "account_for_loss")


def by_hand(process: int, memory: int) -> float:
    """The probability with the numbers of the documentation: the exponent exact, its exponential in decimals."""
    exponent = (Fraction(80, 100) * Fraction(985, 1000) * memory / process) ** 5
    return float((-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())


def test_the_formula_is_that_of_the_documentation() -> None:
    draw = Random(18)
    for _ in range(200):
        memory = draw.randint(16, 300) * GIB
        process = draw.randint(memory // 8, memory)
        expected = by_hand(process, memory)
        assert run_out_probability(process, process, memory) == pytest.approx(expected, rel=1e-12)


def test_more_memory_of_a_process_is_never_safer_and_a_larger_gpu_never_worse() -> None:
    draw = Random(19)
    for _ in range(100):
        memory, process = draw.randint(16, 300) * GIB, draw.randint(GIB, 300 * GIB)
        more = process + draw.randint(1, 40 * GIB)
        assert run_out_probability(process, process, memory) <= run_out_probability(more, more, memory)
        assert run_out_probability(process, process, 2 * memory) <= run_out_probability(process, process, memory)


def test_what_is_allocated_above_the_memory_is_certain() -> None:
    assert run_out_probability(80 * GIB, 81 * GIB, 80 * GIB) < 1
    assert run_out_probability(80 * GIB + 1, 80 * GIB + 1, 80 * GIB) == 1


@pytest.mark.parametrize("memory", [24, 40, 80, 180])
def test_the_limit_of_fits_is_where_the_forecast_changes(memory: int) -> None:
    limit = int(process_limit(FITS_BELOW) * memory * GIB)
    names = [FORECASTS[forecast(run_out_probability(size, size, memory * GIB))][0]
             for size in (limit - 4096, limit + 4096, memory * GIB + 1)]
    assert names == ["fits", "uncertain", "out of memory"]


def test_explain_judges_the_process_of_the_fullest_rank() -> None:
    account = explain("llama-3.1-8b", "h100-80gb", tensor_parallel=2, num_gpus=16, global_batch_size=64)
    expected = by_hand(account.process.total, account.gpu.memory_bytes)
    assert account.run_out_probability == pytest.approx(expected, rel=1e-12)
    assert account.forecast == "uncertain"
    assert account.verdict == "fits"  # the 80 % rule stays as published
    assert forecast_line(account) == (
        f"That process runs out of memory with a probability of {expected:.1%}: uncertain.")


def test_a_measured_run_moves_the_probability(tmp_path: Path) -> None:
    run = {"tensor_parallel": 2, "num_gpus": 16, "global_batch_size": 64}
    plain = explain("llama-3.1-8b", "h100-80gb", **run)
    anchor = tmp_path / "run.json"
    anchor.write_text(json.dumps({"run": {"model": "llama-3.1-8b", "gpu": "h100-80gb", **run},
                                  "measured": {"allocated_bytes": plain.peak_bytes + 4 * GIB}}), encoding="utf-8")
    anchored = explain("llama-3.1-8b", "h100-80gb", anchor=anchor, **run)
    assert anchored.process.total > plain.process.total
    assert anchored.run_out_probability == pytest.approx(by_hand(anchored.process.total, 80 * GIB), rel=1e-12)


@pytest.mark.slow
def test_a_sweep_gives_each_layout_the_probability_of_explain(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = sweep("llama-3.1-8b", "h100-80gb", num_gpus=16, global_batch_size=64)
    layouts = [*result.best, *result.best_by_recompute.values()]
    assert any(layout.pipeline_parallel > 1 for layout in layouts)
    for layout in layouts:
        sizes = {name: getattr(layout, name) for name in SIZES}
        account = explain("llama-3.1-8b", "h100-80gb", global_batch_size=64, num_gpus=16, recompute=layout.recompute,
                          **sizes)
        assert account.peak_bytes == layout.peak_bytes
        assert (layout.run_out_probability, layout.forecast) == (account.run_out_probability, account.forecast)
    monkeypatch.setenv("COLUMNS", "200")
    show(result)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "%" in line]
    assert [row[-1] for row in rows[:len(layouts)]] == [chance(layout.run_out_probability) for layout in layouts]


@pytest.mark.parametrize(("probability", "text"), [
    (0.0, "<0.1%"), (0.0004, "<0.1%"), (0.047, "4.7%"), (0.9995, ">99.9%"), (1.0, "100.0%"),
])
def test_a_little_is_not_shown_as_nothing(probability: float, text: str) -> None:
    assert chance(probability) == text
