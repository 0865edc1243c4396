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
    """Return the goals of the replay of Megatron-Core, and what it reached."""
    groups = {"Megatron-Core, replayed: reserved": own,
              "dense stages": of_group(own, simumax.DENSE), "stages with experts": of_group(own, simumax.EXPERTS)}
    return [at_most(name, [item.error for item in items], 0.01) for name, items in groups.items() if items]


def of_group(own: Sequence[Replayed], group: str) -> list[Replayed]:
    """Return the stages of dense models, or those of models with experts and latent attention."""
    return [item for item in own if item.case.group == group]


def parts() -> list[str]:
    """Return the rows of SimuMax's stages, replayed; nothing is fitted to them."""
    own = megatron()
    lines = [(item.case.id, item.rank,
              *(f"{size / GIB:.2f}" for size in (item.allocated, item.measured, item.replayed)),
              f"{item.error:+.2%}", f"{(item.replayed - item.measured) / MIB:+,.0f}") for item in own]
    dense, experts = of_group(own, simumax.DENSE), [item.error for item in of_group(own, simumax.EXPERTS)]
    sliced = [abs(item.error) for item in dense if item.case.arguments["context_parallel"] > 1]
    others = [abs(item.error) for item in dense if item.case.arguments["context_parallel"] == 1]
    return [
        paragraph(f"""Megatron-Core's steps, replayed, beside the reserved memory of SimuMax's stages; nothing is
        fitted. Measured is the fullest GPU of a stage; replayed are all of its GPUs, each with the parameters of its
        part of the optimizer, and the fullest is compared. Dense stages without context parallelism are
        {np.median(others):.1%} off in the median and {max(others):.1%} at most; those with it {np.median(sliced):.1%}
        and {max(sliced):.1%}: copies that its exchange of all tokens makes are no tensors of the replay.
        {sum(item.error < 0 for item in own)} of {len(own)} errors are on the low side."""),
        paragraph(f"""Stages with experts and latent attention are {-max(experts):.1%} to {-min(experts):.1%} too low;
        the cause is not known. Their attention is replayed in the order of Megatron-Core's own code. What was tried:
        if tokens that are sent between experts came back late, as they do from a stream of communication, 20 to 100
        allocations later would be enough, but no such delay fits all six."""),
        targets(targets_of(own)),
        markdown(("run", "stage", "allocated GiB", "measured", "replayed", "error", "MiB"), lines),
    ]
