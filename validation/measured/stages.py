"""Reserved memory of Megatron-Core's stages that SimuMax measured, as a replay of two steps gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from shardmath.account.configured import configured
from shardmath.account.replaying import refuse_unreplayed_job
from shardmath.allocator.settings import MIB, Settings
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.steps.reserved import replayed_rank
from validation.measured import simumax
from validation.measured.case import GIB, RESERVED, Case
from validation.measured.metrics import Target, at_most
from validation.measured.sections import paragraph, targets
from validation.tables import markdown


@dataclass(frozen=True)
class Replayed:
    """A pipeline stage of SimuMax's runs: measured, replayed and allocated bytes."""

    case: Case
    rank: int
    measured: int
    replayed: int
    allocated: int

    @property
    def error(self) -> float:
        """Replayed minus measured, as a share of the measured."""
        return self.replayed / self.measured - 1


@cache
def megatron() -> tuple[Replayed, ...]:
    """Replay the stages of SimuMax's runs, as far as their steps are replayed."""
    known = []
    for case in simumax.read(quantity=RESERVED):
        assert case.model is not None
        job = configured(case.model, case.gpu, **case.arguments).job
        try:
            refuse_unreplayed_job(job)
        except InputError:
            continue
        for measured in case.measured:
            values = job.on_rank(measured.rank or 0)
            numbers = terms_at(job.evaluator.terms, values)
            shards = values["data_parallel"] * values["context_parallel"]
            answer = max((replayed_rank(job.evaluator, values, numbers, Settings(), shard) for shard in range(shards)),
                         key=lambda of_gpu: of_gpu.reserved_bytes)
            known.append(Replayed(case, values["pipeline_rank"], measured.bytes, answer.reserved_bytes,
                                  answer.allocated_bytes))
    return tuple(known)


def targets_of(own: Sequence[Replayed]) -> list[Target]:
    """Return the goal of the replay of Megatron-Core, and what it reached."""
    return [at_most("Megatron-Core, replayed: reserved", [item.error for item in own], 0.01)]


def parts() -> list[str]:
    """Return the rows of SimuMax's dense stages, replayed; nothing is fitted to them."""
    lines = [(item.case.id, item.rank,
              *(f"{size / GIB:.2f}" for size in (item.allocated, item.measured, item.replayed)),
              f"{item.error:+.2%}", f"{(item.replayed - item.measured) / MIB:+,.0f}") for item in megatron()]
    sliced = [abs(item.error) for item in megatron() if item.case.arguments["context_parallel"] > 1]
    others = [abs(item.error) for item in megatron() if item.case.arguments["context_parallel"] == 1]
    return [
        paragraph(f"""Megatron-Core's steps, replayed, beside the reserved memory of SimuMax's dense stages; nothing is
        fitted. Measured is the fullest GPU of a stage; replayed are all of its GPUs, each with the parameters of its
        part of the optimizer, and the fullest is compared. Without context parallelism the error is
        {np.median(others):.1%} in the median and {max(others):.1%} at most; with it, {np.median(sliced):.1%} and
        {max(sliced):.1%}: copies that its exchange of all tokens makes are no tensors of the replay.
        {sum(item.error < 0 for item in megatron())} of {len(megatron())} errors are on the low side. What else is
        missing is not known. Stages with experts have latent attention, which is not replayed yet."""),
        targets(targets_of(megatron())),
        markdown(("run", "stage", "allocated GiB", "measured", "replayed", "error", "MiB"), lines),
    ]
