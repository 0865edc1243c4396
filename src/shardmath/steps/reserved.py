"""Replay a rank's steps through the caching allocator: what it reserves, and why it is more than what is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from shardmath.allocator.settings import Settings
from shardmath.allocator.trace import Replay as Replayed
from shardmath.allocator.trace import replay
from shardmath.compiler.evaluators import Evaluator
from shardmath.errors import InputError
from shardmath.steps.answers import Replay
from shardmath.steps.peaks import refuse_another_peak
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps, refuse_unreplayed, refuse_unwalked


def replayed_steps(
    evaluator: Evaluator, values: Mapping[str, int], account: Mapping[str, int | Fraction], settings: Settings,
    shard: int = 0,
) -> tuple[Steps, Replayed, int, bool]:
    """Replay two steps of a rank at its ``values``; ``account`` are the terms of its memory.

    The first step makes the optimizer states out of freed activations; the second finds them. Where ranks share them
    out, they are those of shard number ``shard``. With too little memory the replay is done again without a bound.
    Returns steps and replay, the bytes that PyTorch can get, and whether they were enough.
    Raises InputError for a rank that is not replayed yet, and for steps whose own peak is not that of the account, to
    the byte.
    """
    refuse_unreplayed(evaluator.choices, values)
    rows = Rows.of(evaluator, values, account)
    refuse_unwalked(rows)
    if not rows.layers:
        raise InputError("pipeline_rank", values["pipeline_rank"], "must have layers: others are not replayed yet")
    steps = Steps(rows, evaluator.choices["schedule"], values["microbatch_group"] or values["pipeline_parallel"],
                  shard=shard)
    events = steps.run()
    refuse_another_peak(steps.trace, evaluator.choices, values, int(account["stage.total"]))
    capacity = int(values["gpu_memory"] - (account["process.total"] - account["process.reserved"]))
    bounded = replace(settings, capacity_bytes=max(1, capacity))
    answer = replay(events, bounded if settings.garbage_collection_threshold else settings)
    if answer.failed_at is None and answer.reserved_peak > capacity >= steps.trace.peak:
        answer = replay(events, bounded)  # cached segments may go back to the driver in time
    fits = answer.failed_at is None and answer.reserved_peak <= capacity
    return steps, answer if answer.failed_at is None else replay(events, settings), capacity, fits


def replayed_rank(
    evaluator: Evaluator, values: Mapping[str, int], account: Mapping[str, int | Fraction], settings: Settings,
    shard: int = 0,
) -> Replay:
    """Return what the allocator reserves for the steps of a rank, as ``replayed_steps`` replays them."""
    steps, answer, capacity, fits = replayed_steps(evaluator, values, account, settings, shard)
    fullest, statistics = answer.fullest, answer.allocator.statistics
    return Replay(
        reserved_bytes=statistics.reserved_peak, allocated_bytes=steps.trace.peak,
        rounding_bytes=fullest.rounding_bytes, awaiting_bytes=fullest.awaiting_bytes,
        split_bytes=fullest.inactive_split_bytes, cached_bytes=fullest.cached_bytes,
        segments=statistics.segments, retries=statistics.retries, capacity_bytes=capacity, fits=fits,
        events=len(steps.trace.events),
    )
