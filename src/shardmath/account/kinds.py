"""Which kind of GPU each pipeline stage is on, and what the ledger's formulas take from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import gcd

from shardmath.account.time import machine_values
from shardmath.compiler.evaluators import Evaluator, times_at
from shardmath.configuration.job import Job
from shardmath.configuration.run import Run
from shardmath.configuration.settings import libraries
from shardmath.divisors import divisors
from shardmath.errors import InputError
from shardmath.input.parameters import MACHINE, refuse_illegal
from shardmath.machines import Cluster, Kind

#: Picoseconds of a second, the unit of figures of all stages.
_PICO = 10**12
_SENT = "stage.send"
#: Figures of all stages by the end of their name: the term of each, whose largest they are.
_LARGEST = {
    "slowest": "stage.microbatch_time", "data_waiting": "stage.data_waiting", "optimizer": "stage.optimizer_time",
}
_OF_ALL = "all_stages_"


def kinds_of_stages(cluster: Cluster, num_gpus: int, stages: int) -> tuple[Kind, ...]:
    """Return the kind of each stage: stages follow each other on the GPUs of the cluster, in the order of its kinds.

    Raises InputError where the job leaves GPUs over, and where a stage would lie on two kinds.
    """
    total = cluster.num_gpus
    if num_gpus != total:
        numbers = " + ".join(f"{kind.gpus} x {kind.cluster.gpu.name}" for kind in cluster.kinds)
        raise InputError("num_gpus", num_gpus, f"must be all GPUs of the cluster, {numbers}", str(total))
    shared = gcd(*(kind.gpus for kind in cluster.kinds))
    if total % stages or shared % (total // stages):
        legal = [total // size for size in divisors(shared)]
        below, above = ([size for size in legal if size < stages], [size for size in legal if size > stages])
        near = " or ".join(map(str, (*([max(below)] if below else []), *([min(above)] if above else []))))
        rule = (f"must give each kind of GPU whole stages of num_gpus / pipeline_parallel of them, which divides"
                f" {shared}: tensor, context and data parallelism over several kinds are not counted yet")
        raise InputError("pipeline_parallel", stages, rule, near)
    width = total // stages
    return tuple(kind for kind in cluster.kinds for _ in range(kind.gpus // width))


def on_kinds(job: Job, kinds: Sequence[Kind], run: Run) -> Job:
    """Return the same job with the memory, the libraries and the nodes of each stage's own GPUs.

    Raises InputError for what is not legal on one of them.
    """
    by_rank = [
        {**own, **{name: value for name, value in _memory(kind.cluster).items() if name not in run.others}}
        for own, kind in zip(job.by_rank, kinds, strict=True)
    ]
    placed = replace(job, by_rank=tuple(by_rank))
    for kind in dict.fromkeys(map(id, kinds)):
        refuse_illegal(job.evaluator.terms, placed.on_rank([id(own) for own in kinds].index(kind)))
    return placed


def _memory(cluster: Cluster) -> dict[str, int]:
    """Parameters of a kind that change memory or what is legal."""
    return {**libraries(cluster.gpu), **cluster.memory_parameters, "gpu_memory": cluster.gpu.memory_bytes,
            "node_size": cluster.node_size}


def machines_of_stages(job: Job, kinds: Sequence[Kind], machine: Mapping[str, int]) -> list[dict[str, int]]:
    """Return all parameters of each stage's machine by name; those of ``machine`` win over its cluster.

    Figures of all stages together are 1. Raises InputError where a figure is not known.
    """
    evaluator, known = job.evaluator, dict[int, dict[str, int]]()
    for kind in kinds:
        if id(kind) not in known:
            values = {**machine_values(evaluator, kind.cluster, job.values["num_gpus"]), **machine}
            known[id(kind)] = {**values, **dict.fromkeys(of_all(evaluator), 1)}
    return [known[id(kind)] for kind in kinds]


def of_all(evaluator: Evaluator) -> list[str]:
    """Parameters of all stages together that the time of a step depends on."""
    return [name for name in evaluator.times.INPUTS if name.startswith(_OF_ALL)]


def together(evaluator: Evaluator, stages: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Figures of all stages together, from the values of each; whole picoseconds, rounded up."""
    numbers = [times_at(evaluator.times, stage) for stage in stages]
    sends = [numbers[rank][_SENT] for rank in range(len(stages))]
    borders = [max(pair) for pair in pairwise(sends)]
    seconds = {
        **{end: max(stage[term] for stage in numbers) for end, term in _LARGEST.items()},
        "sum": sum(stage["stage.microbatch_time"] for stage in numbers),
        "slowest_send": max(borders, default=0.0), "sends": sum(borders),
    }
    peaks = sum(stage["matmul_flops"] for stage in stages) // len(stages)
    whole = {end: -int(-value * _PICO // 1) for end, value in seconds.items()}
    return {**{f"{_OF_ALL}{end}": value for end, value in whole.items()}, f"{_OF_ALL}matmul_flops": peaks}


def machine_asked(run: Run) -> dict[str, int]:
    """Parameters of the machine that a run names itself."""
    return {name: value for name, value in run.others.items() if name in MACHINE}
