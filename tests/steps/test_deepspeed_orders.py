"""Replayed steps of DeepSpeed's ZeRO: order and peak are DeepSpeed's own, and the peak is the ledger's to the byte."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from counted import table
from oracles.extent import FULL
from oracles.hugging_face.test_transformers_steps import drawn, model_of, steps_of
from oracles.instruments.traced import explained
from oracles.libraries.deepspeed_orders import most_parameters
from oracles.pytorch.allocation_orders import described, last_passes, least, order

from shardmath.account.configured import Configuration, configured
from shardmath.account.replaying import replayed
from shardmath.compiler.evaluators import terms_at

pytestmark = pytest.mark.slow

ORDERS = table("deepspeed_orders")
MOMENTS = ("loss_forward", "loss_backward", "head_backward", "norm_backward", "layer_backward", "embedding_backward",
           "last_reduce", "optimizer_step")


def run_of(family: str, shape: dict[str, int], row: dict[str, str], *, full: bool, holds: bool) -> Configuration:
    ranks = int(row["ranks"])
    return configured(
        model_of(family, shape), "b300", implementation="huggingface", seq_length=shape["s"],
        micro_batch_size=shape["b"], global_batch_size=shape["b"] * ranks * int(row["microbatches"]),
        data_parallel=ranks, zero_stage=int(row["stage"]), recompute="full" if full else "none",
        torch_workspace_bytes=0, reduce_bucket_size=int(row["bucket"]), overlap_comm=int(row["overlap"]),
        kernels={"peak": "torch", "loss": "huggingface" if holds else "huggingface_freed"})


def of_row(row: dict[str, str]) -> Configuration:
    family, shape, run = described(row)
    return run_of(family, shape, row, full=run["full"], holds=run["holds"])


@pytest.mark.parametrize("place", range(len(ORDERS)))
def test_order_and_peak_are_those_of_deepspeed(place: int) -> None:
    """Of every tensor that is larger than the numbers of a micro-batch's tokens, with the optimizer step.

    In one of four models with biases and a bucket that gets full the order is another, at an equal peak.
    """
    row = ORDERS[place]
    run, shape = of_row(row), described(row)[1]
    made, digest = order(last_passes(steps_of(run).trace.events), least(shape))
    account = replayed(run)
    assert account.replay is not None, account.replay_unknown
    assert account.replay.allocated_bytes == int(row["peak"]), row
    if int(row["bucket"]) >= most_parameters(shape) and (row["ranks"] == "1" or row["microbatches"] == "1"):
        assert explained(run).peak_bytes == int(row["peak"]), row
    else:  # of any rank, and wherever in a layer a bucket gets full
        assert account.peak_bytes >= int(row["peak"]), row
    if row["family"] != "qwen2" or int(row["bucket"]) >= most_parameters(shape):
        assert {"made": str(made), "order": digest} == {name: row[name] for name in ("made", "order")}, row


def test_table_has_every_kind() -> None:
    plain = [row for row in ORDERS if row["stage"] == "2" and row["microbatches"] == "1"]
    assert len({(row["family"], row["recompute"], row["tied"], row["overlap"]) for row in plain}) == 24
    assert {row["ranks"] for row in ORDERS} == {*"1248"}
    assert {row["holds"] for row in ORDERS} == {*"01"}
    seen = {(row["stage"], row["overlap"], row["microbatches"] == "1", int(row["bucket"]) >= most_parameters(shape))
            for row in ORDERS for shape in [described(row)[1]]}
    assert len(seen) == 16


def test_peak_of_the_trace_is_the_ledgers() -> None:
    """In drawn models, where one bucket has all gradients; what a part cuts with several ranks is said as the most."""
    peaks = set()
    for seed in range(200 if FULL else 12):
        draw = Random(f"deepspeed {seed}")
        family, shape, run = drawn(draw)
        shape |= {"s": draw.choice((16, 256, shape["s"]))}
        ranks, bucket = draw.choice((1, 1, 2, 4, 64)), most_parameters(shape) * draw.choice((1, 1, 3))
        stage, batches = draw.choice((1, 2)), draw.choice((1, 1, 2, 3))
        row = {"ranks": str(ranks), "bucket": str(bucket), "overlap": str(draw.randrange(2)), "stage": str(stage),
               "microbatches": str(batches)}
        configuration = run_of(family, shape, row, full=run["full"], holds=run["holds"])
        account, numbers = replayed(configuration), configuration.job
        values = terms_at(numbers.evaluator.terms, numbers.on_rank(0))
        peaks.add(peak := max(MOMENTS, key=lambda name: values[f"stage.{name}.all"]))
        assert account.replay is not None, account.replay_unknown
        assert account.replay.allocated_bytes <= account.peak_bytes
        cuts = ranks > 1 and (peak == "optimizer_step" or (stage == 2 and batches > 1))
        assert cuts or account.replay.allocated_bytes == account.peak_bytes, (seed, row, peak)
    assert peaks >= {"loss_backward", "norm_backward", "layer_backward", "last_reduce", "optimizer_step"}, peaks


@pytest.mark.parametrize(("model", "others", "words"), [
    ("llama-3.2-1b", {"kernels": {}}, "peak = 'saved'"),
])
def test_what_is_not_replayed(model: str, others: dict[str, Any], words: str) -> None:
    asked = {"implementation": "huggingface", "seq_length": 2048, "data_parallel": 8, "zero_stage": 2,
             "kernels": {"peak": "torch"}, "global_batch_size": 8, **others}
    assert words in replayed(configured(model, "h100-80gb", **asked)).replay_unknown
