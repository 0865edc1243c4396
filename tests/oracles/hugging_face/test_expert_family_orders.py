"""The order of a replayed step of Transformers with experts against Transformers itself."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from oracles.hugging_face.family_steps import recorded
from oracles.hugging_face.test_expert_family_steps import Keys, drawn
from oracles.hugging_face.test_family_steps import run_of
from oracles.pytorch.allocation_orders import words

from shardmath.account.configured import Configuration
from shardmath.allocator.trace import Action, Event
from shardmath.compiler.evaluators import terms_at
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps

pytestmark = pytest.mark.slow


def last_micro_batch(run: Configuration) -> list[Event]:
    """Return the events of a replay behind its last tables of the rotary embedding."""
    values = run.job.on_rank(0)
    steps = Steps(Rows.of(run.job.evaluator, values, terms_at(run.job.evaluator.terms, values)), "1f1b", 1)
    steps.run()
    events = steps.trace.events
    start = max(place for place, event in enumerate(events)
                if event.action is Action.ALLOCATE and event.row.startswith("tables."))
    return events[start + 1:]


def drawn_order(draw: Random, family: str) -> tuple[Keys, Keys]:
    """Draw a model and a run; one key head needs no copies, and one expert of a token no sums, in Transformers."""
    config, run = drawn(draw, family)
    while config["num_key_value_heads"] < 2:
        config, run = drawn(draw, family)
    return {**config, "num_experts_per_tok": 2}, {**run, "sequence": max(run["sequence"], 64)}


@pytest.mark.cases(2, 40)
@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral", "dots1"])
def test_order_is_that_of_transformers(draw: Random, family: str, tmp_path: Path) -> None:
    """Of every tensor as large as the residual stream or larger, sums of gradients as new tensors.

    So a recorder sees them; a GPU adds some in place.
    """
    config, run = drawn_order(draw, family)
    least = 2 * run["batch"] * run["sequence"] * config["hidden_size"]
    mine, events = words(last_micro_batch(run_of(tmp_path, config, **run)), least), recorded(config, **run).events
    made = [place for place, event in enumerate(events) if event.action is Action.ALLOCATE and event.size >= least]
    assert mine == words(events[made[-len(mine)]:], least), (config, run)
