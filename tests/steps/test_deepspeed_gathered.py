"""Replayed steps of DeepSpeed's stage 3: order and peak are DeepSpeed's own, and the account has at least as much."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from counted import table
from oracles.extent import FULL
from oracles.hugging_face.test_transformers_steps import drawn, model_of, steps_of
from oracles.libraries.deepspeed_orders import most_parameters
from oracles.pytorch.allocation_orders import described, last_passes, least, order

from shardmath.account.configured import Configuration, configured
from shardmath.account.replaying import replayed
from shardmath.compiler.evaluators import terms_at
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps

pytestmark = pytest.mark.slow

ORDERS = table("deepspeed_gathered")
#: Columns of limits, and their parameters.
LIMITS = {"bucket": "reduce_bucket_size", "threshold": "param_persistence_threshold",
          "prefetch": "prefetch_bucket_size", "live": "max_live_parameters", "reuse": "max_reuse_distance",
          "subgroup": "sub_group_size"}


def run_of(family: str, shape: dict[str, int], row: dict[str, str]) -> Configuration:
    ranks = int(row["ranks"])
    return configured(
        model_of(family, shape), "b300", implementation="huggingface", seq_length=shape["s"],
        micro_batch_size=shape["b"], global_batch_size=shape["b"] * ranks * int(row["microbatches"]),
        data_parallel=ranks, zero_stage=3, recompute=row["recompute"], torch_workspace_bytes=0,
        overlap_comm=int(row["overlap"]), **{field: int(row[column]) for column, field in LIMITS.items()},
        kernels={"peak": "torch", "loss": "huggingface" if row["holds"] == "1" else "huggingface_freed"})


@pytest.mark.parametrize("place", range(len(ORDERS)))
def test_order_and_peak_are_those_of_deepspeed(place: int) -> None:
    """Of every tensor that is larger than the numbers of a micro-batch's tokens, with the optimizer step."""
    row = ORDERS[place]
    family, shape, _ = described(row)
    run = run_of(family, shape, row)
    steps = steps_of(run)
    made, digest = order(last_passes(steps.trace.events), least(shape))
    assert {"made": str(made), "order": digest} == {name: row[name] for name in ("made", "order")}, row
    assert steps.trace.peak == int(row["peak"]), row
    account = replayed(run)
    assert account.replay is not None, account.replay_unknown
    assert account.replay.allocated_bytes == int(row["peak"]) <= account.peak_bytes, row


def test_account_is_exact_where_the_loss_is_the_peak() -> None:
    """Of models whose parameters all stay gathered, or are gathered one at a time; padding may be copied out or not."""
    exact = set[str]()
    for row in ORDERS:
        family, shape, _ = described(row)
        alone, every = row["reuse"] == row["prefetch"] == "0", int(row["reuse"]) > 2 * most_parameters(shape)
        run = run_of(family, shape, row)
        account = replayed(run)
        if (alone or every) and steps_of(run).trace.peak_point == "loss_backward":
            terms = terms_at(run.job.evaluator.terms, run.job.on_rank(0))
            padding = 2 * (terms["stage.buffer_elements"] - terms["stage.parameters"])
            assert int(row["peak"]) <= account.peak_bytes <= int(row["peak"]) + padding, row
            exact.add("alone" if alone else "every")
    assert exact == {"alone", "every"}


def test_table_has_every_kind() -> None:
    assert len({(row["recompute"], row["tied"], row["prefetch"] == "0") for row in ORDERS}) == 8
    assert len({(row["family"], row["recompute"]) for row in ORDERS}) == 6
    assert {row["ranks"] for row in ORDERS} == {*"234"}
    assert {row["microbatches"] for row in ORDERS} == {*"12"}
    assert any(int(row["threshold"]) > int(row["h"]) for row in ORDERS)


def test_account_has_what_is_replayed() -> None:
    """In drawn models with drawn limits, on any rank."""
    exact = 0
    for seed in range(100 if FULL else 8):
        draw = Random(f"gathered {seed}")
        family, shape, run = drawn(draw)
        most, square = most_parameters(shape), shape["h"]**2
        row = {
            "ranks": draw.choice("12345678"), "overlap": draw.choice("01"), "holds": draw.choice("01"),
            "microbatches": draw.choice("12"), "recompute": "full" if run["full"] else "none",
            "bucket": str(draw.choice((square, most, 3 * most))),
            "threshold": str(draw.choice((0, shape["h"], 3 * square))),
            "prefetch": str(draw.choice((0, square, 2 * most))), "live": str(draw.choice((0, 5 * square, 2 * most))),
            "reuse": str(draw.choice((0, 5 * square, 3 * most))), "subgroup": str(draw.choice((square, most)))}
        configuration = run_of(family, shape, row)
        values = configuration.job.on_rank(0)
        terms = terms_at(configuration.job.evaluator.terms, values)
        steps = Steps(Rows.of(configuration.job.evaluator, values, terms), "1f1b", 1)
        steps.run()
        assert steps.trace.peak <= int(terms["stage.total"]), (seed, row)
        exact += steps.trace.peak == int(terms["stage.total"])
    assert exact


@pytest.mark.parametrize(("model", "others", "words"), [
    ("llama-3.2-1b", {"kernels": {}}, "peak = 'saved'"),
])
def test_what_is_not_replayed(model: str, others: dict[str, Any], words: str) -> None:
    asked = {"implementation": "huggingface", "seq_length": 2048, "data_parallel": 8, "zero_stage": 3,
             "kernels": {"peak": "torch"}, "global_batch_size": 8, **others}
    assert words in replayed(configured(model, "h100-80gb", **asked)).replay_unknown
