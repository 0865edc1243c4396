"""Numbers of docs/systems/mixed_gpus.md that no console block there prints: the table of when it wins, and its text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardmath import Cluster, InputError, explain, explore, sweep
from shardmath.machines.files import cluster_of
from shardmath.search.nests.listed import MOST
from shardmath.search.spaces import Best, Space

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs/systems/mixed_gpus.md"
TEXT = " ".join(PAGE.read_text(encoding="utf-8").split())
#: Rows of the table beside the one that `tests/systems/test_systems_numbers.py` reads at any extent.
BATCHES = (8, 16, 256)


def both(first: str, second: str) -> Cluster:
    kinds = [{"gpu": gpu, "gpus": 8} for gpu in (first, second)]
    return cluster_of({"name": "both", "network": "ndr-400", "kinds": kinds})


def fastest(batch: int, *gpus: str) -> float:
    cluster = gpus[0] if len(gpus) == 1 else both(*gpus)
    return float(sweep("llama-3.1-8b", cluster, 8 * len(gpus), global_batch_size=batch, context_parallel=(1,),
                       recompute=("none", "full"), top=1).best[0].step_seconds or 0)


@pytest.mark.parametrize("batch", BATCHES)
def test_when_it_wins(batch: int) -> None:
    row = re.search(rf"\| {batch} \| (\S+) s \| (\S+) s \| (\S+) s \| (\S+) s \| (\S+) s \|", TEXT)
    assert row is not None
    h100, a100 = "h100-80gb", "a100-80gb"
    one, other = fastest(batch, h100), fastest(batch, a100)
    sum_of_rates = 1 / (1 / one + 1 / other)
    ours = (one, other, fastest(batch, h100, a100), fastest(batch, a100, h100), sum_of_rates)
    assert row.groups() == tuple(f"{seconds:.2f}" for seconds in ours)


def test_the_model_that_no_kind_alone_holds() -> None:
    asked = {"global_batch_size": 64, "context_parallel": (1,), "recompute": ("none", "full"), "top": 1}
    for gpu in ("h100-80gb", "a100-80gb"):
        assert not sweep("llama-3.1-70b", gpu, 16, **asked).verdicts["fits"]  # type: ignore[arg-type]
    assert "on 16 H100 or 16 A100 no layout of Llama-3.1-70B fits" in TEXT


def test_more_candidates_are_refused() -> None:
    assert f"so that {MOST:,} candidates are the most" in TEXT
    axes = {"micro_batch_size": range(1, 2001), "tensor_parallel": [1, 2], "stage_stall_ns": range(2501)}
    with pytest.raises(InputError, match="must give at most 10,000,000 layouts on several kinds of GPUs"):
        explore(Space({name: list(values) for name, values in axes.items()}, "llama-3.2-1b",
                      cluster=both("h100-80gb", "a100-80gb"), fixed={"pipeline_parallel": 2, "global_batch_size": 16},
                      questions=(Best("best", ("step.time",)),)))


def test_the_stages_are_described_by_their_layers() -> None:
    model = explain("deepseek-v2-lite", "h100-80gb").model
    assert (model.num_layers, model.first_dense_layers) == (27, 1)
    assert "of DeepSeek-V2-Lite's 27 layers the first is dense" in TEXT
