"""Generated evaluators of plain Python in a loop, on a sample: the ledger's, and a published one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

import numpy as np

from benchmarks.contenders import Contender
from benchmarks.data import Columns, Job, Outputs
from shardmath.generated import megatron_lm

#: Answer of the published function: another estimate than the ledger's peak, and so another name.
PUBLISHED = "megatron_lm.total"


#: Layouts that they are run on, unless a run asks for another number.
SAMPLE = 2_000


def contenders(job: Job) -> list[Contender]:
    """Return every term of the ledger on floats, and of Megatron-LM's published function, on a sample."""
    module = job.evaluator.terms
    return [
        Contender("shardmath, generated plain Python", f"all {len(module.TERMS)} terms", 1,
                  _loop(module, "peak", job), SAMPLE),
        Contender("Megatron-LM's published function, plain Python", "another formula", 1,
                  _loop(megatron_lm, PUBLISHED, job), SAMPLE, other=True),
    ]


def _loop(module: ModuleType, answer: str, job: Job) -> Callable[[Columns], Outputs]:
    fixed = {name: float(value) for name, value in job.values.items() if name in module.INPUTS}
    if "pipeline_rank" in module.INPUTS:
        fixed["pipeline_rank"] = 0.0
    names = [name for name in module.INPUTS if name not in fixed]
    terms: Callable[..., dict[str, float]] = partial(module.terms, **fixed)

    def run(columns: Columns) -> Outputs:
        lists = [columns[name].tolist() for name in names]
        answers = [terms(**dict(zip(names, row, strict=True)))[answer] for row in zip(*lists, strict=True)]
        return {answer: np.asarray(answers)}

    return run
