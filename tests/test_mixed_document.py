"""Numbers of docs/systems/mixed_gpus.md that no console block there prints: the table of when it wins, and its text."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from shardmath import Cluster, explain, sweep
from shardmath.machines.files import cluster_of

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[1] / "docs/systems/mixed_gpus.md"
TEXT = " ".join(PAGE.read_text(encoding="utf-8").split())
BATCHES = (8, 16, 64, 256)


def both(first: str, second: str, gpus: int = 8, network: str = "ndr-400") -> Cluster:
    kinds = [{"gpu": gpu, "gpus": gpus} for gpu in (first, second)]
    return cluster_of({"name": "both", "network": network, "kinds": kinds})


@cache
def fastest(batch: int, *gpus: str, network: str = "ndr-400") -> float:
    cluster = gpus[0] if len(gpus) == 1 else both(*gpus, network=network)
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


def test_shares_in_the_text() -> None:
    less = {batch: 1 - fastest(batch, "h100-80gb", "a100-80gb") / fastest(batch, "h100-80gb") for batch in (8, 64)}
    assert (f"With 64 sequences the pipeline over both takes {100 * less[64]:.0f} % less than H100 alone, with 8 only "
            f"{100 * less[8]:.0f} %") in TEXT
    slow = fastest(64, "h100-80gb", "a100-80gb", network="ethernet-100")
    assert f"with Ethernet of 100 Gbit/s the same 64 sequences take {slow:.2f} s" in TEXT


def test_the_model_that_no_kind_alone_holds() -> None:
    asked = {"global_batch_size": 64, "context_parallel": (1,), "recompute": ("none", "full"), "top": 1}
    for gpu in ("h100-80gb", "a100-80gb"):
        assert not sweep("llama-3.1-70b", gpu, 16, **asked).verdicts["fits"]  # type: ignore[arg-type]
    (best,) = sweep("llama-3.1-70b", both("h100-80gb", "a100-80gb", 16), 32, **asked).best  # type: ignore[arg-type]
    assert f"a step of 64 sequences takes {best.step_seconds:.1f} s" in TEXT


def test_the_stages_are_described_by_their_layers() -> None:
    model = explain("deepseek-v2-lite", "h100-80gb").model
    assert (model.num_layers, model.first_dense_layers) == (27, 1)
    assert "of DeepSeek-V2-Lite's 27 layers the first is dense" in TEXT
