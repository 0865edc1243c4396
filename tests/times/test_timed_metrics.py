"""Metrics of step time and its baselines, on numbers small enough to reckon by hand."""

from __future__ import annotations

import numpy as np
import pytest

from validation.timed.baselines import by_rule
from validation.timed.cases import fujii2024, hagemann2023
from validation.timed.metrics import Ranking, spread
from validation.timed.results import ranked

pytestmark = pytest.mark.slow

MEASURED = np.array([1.0, 1.02, 1.2, 2.0, 10.0, 8.0])
GROUPS = ("a", "a", "a", "a", "b", "b")


def ranking(*predicted: float) -> Ranking:
    return Ranking(np.array(predicted), MEASURED, GROUPS)


def test_what_predicts_exactly() -> None:
    found = ranking(*MEASURED)
    assert (found.error, found.bias, found.ordered, found.kendall, found.spearman) == (0, 0, 1, 1, 1)
    assert found.regret == {"a": 0, "b": 0}
    assert found.best_of_few == {"a": 0, "b": 0}


def test_a_wrong_first_choice() -> None:
    """The third is chosen first, 20 % slower; of pairs 5 % apart (5 in a, 1 in b) those of 1 and 2 with 3 are wrong."""
    found = ranking(1.0, 1.02, 0.9, 2.0, 8.0, 10.0)
    assert found.regret == {"a": pytest.approx(0.2), "b": pytest.approx(0.25)}
    assert found.best_of_few == {"a": 0, "b": 0}
    assert found.ordered == pytest.approx(3 / 6)
    assert found.kendall == pytest.approx(((6 - 2 * 2) / 6 - 1) / 2)


def test_first_three_choices_may_miss_the_best() -> None:
    assert ranking(3.0, 1.0, 1.1, 2.0, 1.0, 2.0).best_of_few == {"a": pytest.approx(0.02), "b": 0}


def test_equal_predictions_count_half_and_cost_the_mean() -> None:
    found = ranking(0, 0, 0, 0, 0, 0)
    assert found.ordered == 0.5
    assert found.regret == {"a": pytest.approx(MEASURED[:4].mean() - 1), "b": pytest.approx(9 / 8 - 1)}


def test_spread() -> None:
    assert spread([0.0, 0.0, 0.1, 0.5]) == pytest.approx((0.15, 0.1 + 0.7 * 0.4, 0.05))


def test_the_rule_prefers_few_ranks_and_then_large_micro_batches() -> None:
    table = fujii2024()
    best = [run.job.values for run, place in zip(table.runs, by_rule(table), strict=True) if place == 0]
    sizes = {name: {values[name] for values in best} for name in ("tensor_parallel", "pipeline_parallel")}
    products = [
        run.job.values["tensor_parallel"] * run.job.values["pipeline_parallel"] * run.job.values["context_parallel"]
        for run in table.runs
    ]
    ranks = {
        values["tensor_parallel"] * values["pipeline_parallel"] * values["context_parallel"] for values in best
    }
    assert ranks == {min(products)}, sizes


def test_the_rule_takes_the_best_kernel_first() -> None:
    table = hagemann2023()
    places = by_rule(table)
    fused = [place for place, kernel in zip(places, table.kernels, strict=True) if "RMS" in kernel]
    assert max(fused) < min(place for place, kernel in zip(places, table.kernels, strict=True) if "RMS" not in kernel)


def test_times_are_compared_for_one_sequence() -> None:
    table = fujii2024()
    found = ranked(table, np.array([run.seconds for run in table.runs]))
    assert found.error == 0
    assert found.measured[0] == pytest.approx(table.runs[0].seconds / 1024)
    assert set(found.regret.values()) == {0}


def test_fujii_seconds_give_back_their_flops() -> None:
    """182.6 TFLOP/s on 8 GPUs: 12 B s L h^2 times what Megatron-LM adds up for grouped queries, SwiGLU and head."""
    h, f, L, v, s, B = 4096, 14336, 32, 128256, 8192, 1024
    attention = 12 * B * s * L * h * h * (1 + 8 / 32 + s / h)
    mlp, head = 18 * B * s * L * h * f, 6 * B * s * h * v
    assert fujii2024().runs[0].seconds == pytest.approx((attention + mlp + head) / (182.6e12 * 8))
