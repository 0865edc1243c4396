"""Every layout of a job on several kinds of GPUs, with the layers of its stages shared out for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from shardmath.account.configured import Configuration, configuration_of
from shardmath.account.kinds import kinds_of_stages
from shardmath.account.time import StepTime, machine_values
from shardmath.compiler.evaluators import terms_at
from shardmath.configuration.run import Run, Search
from shardmath.configuration.settings import as_model
from shardmath.errors import InputError
from shardmath.generated.definitions import ABSENT_DEGREES, VERDICTS, num_microbatches, verdict
from shardmath.machines import Cluster
from shardmath.search.layout import Layout
from shardmath.search.nests.running import Progress
from shardmath.search.offered import as_arguments, spaces_of

#: Layouts that are looked at one by one, each for some milliseconds.
MOST = 200_000
#: Axes of a layout here, in the order in which they vary.
_AXES = ("pipeline_parallel", "tensor_parallel", "context_parallel", "recompute", "micro_batch_size",
         "sequence_parallel")
#: Numbers of one configuration behind a rule.
_NUMBERS = re.compile(r" \([a-z_]+ = [^()]*\)$")
_GPUS = "must be a multiple of tensor_parallel * context_parallel * pipeline_parallel"


@dataclass(frozen=True)
class OnKinds:
    """A legal layout: its configuration, the total and the share of each stage's own memory, and its step."""

    configuration: Configuration
    recompute: str
    totals: tuple[int, ...]
    shares: tuple[float, ...]
    verdict: str
    time: StepTime

    @property
    def peak(self) -> int:
        """The stage whose memory is fullest; the first of several."""
        return self.shares.index(max(self.shares))

    @property
    def order(self) -> tuple[float, float]:
        """Smaller is better: seconds of a step, then the largest share of a GPU's memory."""
        return self.time.seconds, max(self.shares)

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of each stage."""
        return tuple(stage["stage_layers"] for stage in self.configuration.job.by_rank)

    @property
    def layout(self) -> Layout:
        """The layout as people see it."""
        values = self.configuration.job.values
        known: dict[str, Any] = {name: values[name] for name in (
            "tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size",
            "sequence_parallel")}
        return Layout(
            **known, recompute=self.recompute, num_microbatches=num_microbatches(**values),
            first_stage_bytes=self.totals[0], last_stage_bytes=self.totals[-1], peak_bytes=self.totals[self.peak],
            share=self.shares[self.peak], verdict=self.verdict, step_seconds=self.time.seconds,
            tokens_per_second_per_gpu=self.time.tokens_per_second_per_gpu, mfu=self.time.mfu,
            pipeline_layout=",".join(map(str, self.layers)),
        )


@dataclass(frozen=True)
class Looked:
    """All layouts of a job: the legal ones, and how many broke which rule, by the argument to blame and the rule."""

    legal: tuple[OnKinds, ...]
    broken: Mapping[tuple[str, str], int]

    @property
    def tried(self) -> int:
        """Layouts that were looked at."""
        return len(self.legal) + sum(self.broken.values())

    def those(self, *verdicts: str) -> list[OnKinds]:
        """Legal layouts with some verdicts, the best first."""
        return sorted((item for item in self.legal if item.verdict in verdicts), key=lambda item: item.order)


def looked_at(search: Search, cluster: Cluster, progress: Progress | None = None) -> Looked:
    """Look at every layout of a search on several kinds of GPUs.

    Candidates are those of the same search on the first kind alone, with one chunk of layers on a rank. Raises
    InputError for values that are not legal anywhere, where no time is known, and for too many layouts.
    """
    kinds_of_stages(cluster, search.num_gpus, max(cluster.num_gpus, 1))
    axes = _axes(search, cluster)
    size = prod(len(candidates) for candidates in axes.values())
    if size > MOST:
        rule = f"must give at most {MOST:,} layouts, not {size:,}: name the sizes to try for some axes"
        raise InputError("num_gpus", search.num_gpus, rule)
    broken: dict[tuple[str, str], int] = {}
    legal = []
    for number, sizes in enumerate(product(*axes.values()), 1):
        try:
            legal.append(_looked(search, cluster, dict(zip(axes, sizes, strict=True))))
        except InputError as error:
            blamed = error.field, _NUMBERS.sub("", error.rule)
            broken[blamed] = broken.get(blamed, 0) + 1
        if progress is not None and (number % _REPORTED == 0 or number == size):
            progress(number, size)
    return Looked(tuple(legal), broken)


def legal_ones(looked: Looked, num_gpus: int) -> Looked:
    """Return what has legal layouts. Raises InputError without any, which names the rule that most of them break."""
    if not looked.legal:
        field, rule = max(looked.broken, key=lambda key: looked.broken[key])
        most = f"of {looked.tried:,} that were tried most break this: {field} {rule}"
        raise InputError("num_gpus", num_gpus, f"must leave a legal layout; {most}")
    return looked


#: Layouts between two reports of progress.
_REPORTED = 64


def _axes(search: Search, cluster: Cluster) -> dict[str, tuple[Any, ...]]:
    """Candidates of each axis by name; refuse sizes of axes that are not counted on several kinds."""
    for name in (*ABSENT_DEGREES, "expert_parallel", "expert_tensor_parallel", "virtual_pipeline"):
        asked = search.asked(name)
        sizes = [asked] if isinstance(asked, int) else list(asked or ())
        if any(size != 1 for size in sizes):
            other = next(size for size in sizes if size != 1)
            raise InputError(name, other, "must be 1 in a search on several kinds of GPUs: not counted yet", "1")
    model = as_model(search.model)
    if model.num_experts:
        raise InputError("model", model.name, "must be dense: the time of expert layers in stages of unequal length is"
                         " not counted yet")
    alone = replace(search, model=model, gpu=cluster.kinds[0].cluster, network=None, virtual_pipeline=(1,))
    with as_arguments(search.num_gpus):
        parts = [part for space in spaces_of(alone, "memory") for part in space.parts()]
    machine_values(parts[0].evaluator, cluster.kinds[0].cluster, search.num_gpus)
    axes = {axis.name: tuple(dict.fromkeys(int(label) if isinstance(label, int) else label
                                           for part in parts for axis_ in part.axes if axis_.name == axis.name
                                           for label in axis_.labels))
            for part in parts for axis in part.axes}
    fixed = parts[0].fixed
    return {name: axes.get(name) or (fixed[name],) for name in _AXES}


def _looked(search: Search, cluster: Cluster, sizes: Mapping[str, Any]) -> OnKinds:
    """One layout. Raises InputError where it is not legal."""
    ranks = sizes["tensor_parallel"] * sizes["context_parallel"] * sizes["pipeline_parallel"]
    kinds_of_stages(cluster, search.num_gpus, sizes["pipeline_parallel"])
    if search.num_gpus % ranks:
        raise InputError("num_gpus", search.num_gpus, _GPUS)
    configuration = configuration_of(Run(
        model=search.model, gpu=cluster, num_gpus=search.num_gpus, global_batch_size=search.global_batch_size,
        seq_length=search.seq_length, schedule=search.schedule, gradients=search.gradients,
        distributed_optimizer=search.distributed_optimizer, zero_stage=search.zero_stage,
        vocab_multiple=search.vocab_multiple, implementation=search.implementation, kernels=search.kernels,
        node_size=search.node_size, others=search.others,
        **{**sizes, "sequence_parallel": bool(sizes["sequence_parallel"])},
    ))
    job = configuration.job
    stages = [job.on_rank(rank) for rank in range(len(job.by_rank))]
    totals = [int(terms_at(job.evaluator.terms, values)["stage.total"]) for values in stages]
    worst = max(verdict(size, values["gpu_memory"]) for size, values in zip(totals, stages, strict=True))
    assert configuration.mixed is not None
    return OnKinds(
        configuration, sizes["recompute"], tuple(totals),
        tuple(size / values["gpu_memory"] for size, values in zip(totals, stages, strict=True)),
        VERDICTS[worst][0], configuration.mixed.time(job),
    )
