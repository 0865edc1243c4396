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
from validation.measured.case import GIB, RESERVED, Case
from validation.measured.metrics import Target, at_most
from validation.measured.sections import paragraph, targets
from validation.measured.sets import simumax
from validation.tables import markdown


@dataclass(frozen=True)
class Replayed:
    """A pipeline stage of SimuMax's runs: measured, replayed and allocated bytes of its fullest GPU, and of each."""

    case: Case
    rank: int
    measured: int
    replayed: int
    allocated: int
    gpus: tuple[tuple[int, int], ...]
    """Measured and replayed bytes of every GPU of the stage."""

    @property
    def error(self) -> float:
        """Replayed minus measured, as a share of the measured."""
        return self.replayed / self.measured - 1


@cache
def megatron() -> tuple[Replayed, ...]:
    """Replay the stages of SimuMax's runs, as far as their steps are replayed."""
    known, by_gpu = [], simumax.reserved_by_gpu()
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
            answers = [replayed_rank(job.evaluator, values, numbers, Settings(), shard) for shard in range(shards)]
            answer = max(answers, key=lambda of_gpu: of_gpu.reserved_bytes)
            ranks, place = shards * values["tensor_parallel"], values["pipeline_rank"]
            own = by_gpu[case.id][place * ranks: (place + 1) * ranks]
            gpus = tuple((size, answers[gpu // values["tensor_parallel"]].reserved_bytes)
                         for gpu, size in enumerate(own))
            known.append(Replayed(case, place, measured.bytes, answer.reserved_bytes, answer.allocated_bytes, gpus))
    return tuple(known)


def targets_of(own: Sequence[Replayed]) -> list[Target]:
    """Return the goals of the replay of Megatron-Core, and what it reached."""
    groups = {"Megatron-Core, replayed: reserved": own,
              "dense stages": of_group(own, simumax.DENSE), "stages with experts": of_group(own, simumax.EXPERTS)}
    return [at_most(name, [item.error for item in items], 0.01) for name, items in groups.items() if items]


def of_group(own: Sequence[Replayed], group: str) -> list[Replayed]:
    """Return the stages of dense models, or those of models with experts and latent attention."""
    return [item for item in own if item.case.group == group]


def _logits(item: Replayed) -> int:
    """MiB of the 16-bit logits of a rank."""
    arguments = item.case.arguments
    assert item.case.model is not None
    tokens = arguments["seq_length"] * arguments["micro_batch_size"] // arguments["context_parallel"]
    return int(2 * tokens * item.case.model.vocab_size // arguments["tensor_parallel"] // MIB)


def parts() -> list[str]:
    """Return the rows of SimuMax's stages, replayed; nothing is fitted to them."""
    own = megatron()
    singly = [replayed / measured - 1 for item in own for measured, replayed in item.gpus]
    lines = [(item.case.id, item.rank,
              *(f"{size / GIB:.2f}" for size in (item.allocated, item.measured, item.replayed)),
              f"{item.error:+.2%}", f"{(item.replayed - item.measured) / MIB:+,.0f}") for item in own]
    beyond = [item for item in own if abs(item.error) > 0.012]
    return [
        paragraph(f"""Megatron-Core's steps, replayed, beside the reserved memory of SimuMax's stages; nothing is
        fitted. Measured is the fullest GPU of a stage; replayed are all of its GPUs, each with the parameters of its
        part of the optimizer, and the fullest is compared. The order is that of the sources of Megatron-Core and
        Transformer Engine 2.11. Of the {len(singly)} GPUs alone the error is {np.median(np.abs(singly)):.2%} in the
        median and {max(map(abs, singly)):.1%} at most; {sum(error == 0 for error in singly)} are equal.
        {sum(item.error < 0 for item in own)} of {len(own)} errors are on the low side."""),
        paragraph(f"""{len(beyond)} stages are more than 1.2% off, all of one model with context parallelism: each by
        about one block of logits ({', '.join(f'{_logits(item):,}' for item in beyond)} MiB), which a run had once more
        than the replay. Which smaller tensor lay in a freed one is not known. What did not change it: other
        addresses of segments, more steps and micro-batches, and a workspace of attention's backward pass."""),
        targets(targets_of(own)),
        markdown(("run", "stage", "allocated GiB", "measured", "replayed", "error", "MiB"), lines),
    ]
