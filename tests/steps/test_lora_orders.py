"""Replayed steps with adapters of PEFT: the order of all that is made and freed, and the peak, are those of PEFT."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from counted import table
from oracles.hugging_face.test_transformers_steps import run_of
from oracles.pytorch.allocation_orders import described, last_passes, least, order
from steps.test_lora_steps import configuration

from shardmath.account.configured import Configuration
from shardmath.account.replaying import replayed
from shardmath.allocator.trace import Action
from shardmath.compiler.evaluators import terms_at
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps

pytestmark = pytest.mark.slow

ORDERS = table("lora_orders")
STEPS = [row for row in table("lora_steps")
         if (row["attention"], row["base_weights"]) == ("sdpa", "full") and row["data_parallel"] != "fsdp"]


def run_of_row(row: dict[str, str]) -> Configuration:
    family, shape, run = described(row)
    ranks = 2 if row["data_parallel"] == "ddp" else 1
    return run_of(family, shape, **run, ranks=ranks, lora_rank=int(row["rl"]), kernels={"adapters": row["adapters"]})


@pytest.mark.parametrize("place", range(len(ORDERS)))
def test_order_is_that_of_peft(place: int) -> None:
    """Of every tensor that is larger than the numbers of a micro-batch's tokens."""
    row = ORDERS[place]
    job = run_of_row(row).job
    values = job.on_rank(0)
    steps = Steps(Rows.of(job.evaluator, values, terms_at(job.evaluator.terms, values)), "1f1b", 1)
    made, digest = order(last_passes(steps.run()), least(described(row)[1]))
    assert {"made": str(made), "order": digest} == {name: row[name] for name in ("made", "order")}, row
    account = replayed(run_of_row(row))
    assert account.replay is not None, account.replay_unknown
    assert account.replay.allocated_bytes == account.peak_bytes


@pytest.mark.parametrize("place", range(len(STEPS)))
def test_peaks_are_those_of_peft(place: int, tmp_path: Path) -> None:
    """Granite's scaled embedding is the tensor that the ledger is known to lack with recompute."""
    row = STEPS[place]
    account = replayed(configuration(row, tmp_path))
    assert account.replay is not None, account.replay_unknown
    is_scaled = (row["family"], row["recompute"]) == ("granite", "full")
    hidden = json.loads(row["config"])["hidden_size"]
    missing = 2 * hidden * int(row["sequence"]) * int(row["batch"]) if is_scaled else 0
    assert account.replay.allocated_bytes == account.peak_bytes == int(row["peak"]) - missing


def test_order_on_4_bit_weights_is_not_known(tmp_path: Path) -> None:
    row = next(row for row in table("lora_steps") if row["attention"] == "sdpa" and row["base_weights"] == "nf4")
    account = replayed(configuration(row, tmp_path))
    assert account.replay is None
    assert account.replay_unknown.startswith("base_weights = 'nf4'"), account.replay_unknown


def test_order_with_fsdp2_is_not_known(tmp_path: Path) -> None:
    row = next(row for row in table("lora_steps") if (row["base_weights"], row["data_parallel"]) == ("full", "fsdp"))
    account = replayed(configuration(row, tmp_path))
    assert account.replay is None
    assert account.replay_unknown.startswith("data_parallel = 'fsdp': must be ddp with adapters")


def test_states_are_those_of_adapters() -> None:
    """Weights are made one by one, frozen ones first; states are those of adapters alone."""
    job = run_of_row(ORDERS[0]).job
    values = job.on_rank(0)
    rows = Rows.of(job.evaluator, values, terms_at(job.evaluator.terms, values))
    frozen, trained = rows.weights(experts=False, frozen=True), rows.weights(experts=False)
    assert sum(rows.weights(experts=False, frozen=None)) == sum(frozen) + sum(trained)
    events = Steps(rows, "1f1b", 1).run()
    for state, sizes in (("weight", [*frozen, *trained]), ("exp_avg", trained), ("exp_avg_sq", trained)):
        made = [event.size for event in events if event.action is Action.ALLOCATE and event.row == state]
        assert made == [2 * size for size in sizes]
