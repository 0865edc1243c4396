"""The GPUs of each pipeline stage on a cluster of several kinds, and what the ledger's formulas take from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd
from typing import Any

from shardmath.account.time import machine_values
from shardmath.compiler.evaluators import Evaluator, times_at
from shardmath.configuration.settings import libraries
from shardmath.divisors import divisors
from shardmath.errors import InputError
from shardmath.machines import Cluster, Kind
from shardmath.machines.cluster import OF_ALL_STAGES

#: Picoseconds of a second, the unit of figures of all stages.
_PICO = 10**12
#: Term of the seconds of one message to another stage.
SEND = "stage.send"
#: Figures of all stages by the end of their name: the term of each, whose largest they are.
_LARGEST = {"data_waiting": "stage.data_waiting", "optimizer": "stage.optimizer_time"}
#: The same of a micro-batch, where a GPU has one chunk of layers, and where it may have several.
_WHOLE = {"slowest": "stage.microbatch_time"}
_CHUNKS = {"slowest": "stage.first_chunk", "slowest_middle": "stage.middle_chunk", "slowest_last": "stage.last_chunk"}


def kinds_of_stages(cluster: Cluster, num_gpus: int, stages: int) -> tuple[Kind, ...]:
    """Return the kind of each stage: stages follow each other on the GPUs of the cluster, in the order of its kinds.

    Raises InputError where the job leaves GPUs over, and where a stage would lie on two kinds.
    """
    total = cluster.num_gpus
    if num_gpus != total:
        numbers = " + ".join(f"{kind.gpus} x {kind.cluster.gpu.name}" for kind in cluster.kinds)
        raise InputError("num_gpus", num_gpus, f"must be all GPUs of the cluster, {numbers}", str(total))
    shared = largest_stage(cluster)
    if total % stages or shared % (total // stages):
        legal = [total // size for size in divisors(shared)]
        below, above = ([size for size in legal if size < stages], [size for size in legal if size > stages])
        near = " or ".join(map(str, (*([max(below)] if below else []), *([min(above)] if above else []))))
        rule = (f"must give each kind of GPU whole stages of num_gpus / pipeline_parallel of them, which divides"
                f" {shared}: tensor, context and data parallelism over several kinds are not counted yet")
        raise InputError("pipeline_parallel", stages, rule, near)
    width = total // stages
    return tuple(kind for kind in cluster.kinds for _ in range(kind.gpus // width))


def largest_stage(cluster: Cluster) -> int:
    """Return the most GPUs of a stage: every number of them divides this one."""
    return gcd(*(kind.gpus for kind in cluster.kinds))


@dataclass(frozen=True)
class Fleet:
    """A cluster of several kinds of GPUs, and the parameters that a job names itself: ``own`` win over each kind's."""

    cluster: Cluster
    own: Collection[str] = ()
    _known: dict[tuple[int, str], dict[str, int]] = field(default_factory=dict, repr=False, compare=False)

    def kinds(self, values: Mapping[str, int]) -> tuple[Kind, ...]:
        """Return the kind of each stage. Raises InputError as ``kinds_of_stages`` does."""
        return kinds_of_stages(self.cluster, values["num_gpus"], values["pipeline_parallel"])

    def memory(self, kind: Kind) -> dict[str, int]:
        """Return parameters of a kind that change memory or what is legal."""
        cluster = kind.cluster
        return self._others({**libraries(cluster.gpu), **cluster.memory_parameters,
                             "gpu_memory": cluster.gpu.memory_bytes, "node_size": cluster.node_size})

    def machine(self, evaluator: Evaluator, kind: Kind) -> dict[str, int]:
        """Return parameters of a kind's machine. Raises InputError where one is not known."""
        key = self._place(kind), evaluator.name
        if key not in self._known:
            links = self.cluster.links
            values = machine_values(evaluator, kind.cluster.model_copy(update={"links": links}), self.cluster.num_gpus)
            if links is not None and (inside := links.inside(self.nodes(kind))) is not None:
                values["node_bandwidth"] = inside
            self._known[key] = self._others(values)
        return self._known[key]

    def nodes(self, kind: Kind) -> range:
        """Return the nodes of a kind, numbered over all kinds."""
        place = self._place(kind)
        start = sum(self.cluster.nodes_of_kinds[:place])
        return range(start, start + self.cluster.nodes_of_kinds[place])

    @property
    def node_of_rank(self) -> tuple[int, ...]:
        """Node of each rank, where nodes are in the order of the cluster file."""
        return tuple(self.nodes(kind).start + gpu // kind.cluster.node_size
                     for kind in self.cluster.kinds for gpu in range(kind.gpus))

    def timed(self, evaluator: Evaluator, ranks: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
        """Return all values of each stage, from those without its machine. Raises InputError for unknown figures."""
        kinds = self.kinds(ranks[0])
        stages = [{**rank, **self.machine(evaluator, kind)} for rank, kind in zip(ranks, kinds, strict=True)]
        figures = together(evaluator, stages)
        return [{**stage, **figures} for stage in stages]

    def _place(self, kind: Kind) -> int:
        return next(place for place, own in enumerate(self.cluster.kinds) if own is kind)

    def _others(self, values: Mapping[str, int]) -> dict[str, int]:
        return {name: value for name, value in values.items() if name not in self.own}


def of_chunks(evaluator: Evaluator) -> Mapping[str, str]:
    """Return terms of a stage's time of one micro-batch by figure of all stages: of all layers, or of each chunk."""
    return _CHUNKS if _CHUNKS["slowest"] in evaluator.times.TERMS else _WHOLE


def terms_of_stages(evaluator: Evaluator) -> Mapping[str, str]:
    """Return terms of a stage's time by figure of all stages, which is the largest of them."""
    return {**of_chunks(evaluator), **_LARGEST}


def together(evaluator: Evaluator, stages: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return figures of all stages together, from the values of each; whole picoseconds, rounded up.

    Where a GPU has several chunks of layers, the last stage sends to the first one too.
    """
    numbers = [times_at(evaluator.times, stage) for stage in stages]
    sends = [numbers[rank][SEND] for rank in range(len(stages))]
    borders = [max(pair) for pair in pairwise(sends)]
    around = [max(sends[0], sends[-1])] if stages[0]["virtual_pipeline"] > 1 else []
    return seconds_of(of_stages(evaluator, numbers, [*borders, *around], borders), stages)


def of_stages(
    evaluator: Evaluator, numbers: Sequence[Mapping[str, Any]], slowest: Sequence[Any], sends: Sequence[Any],
) -> dict[str, Any]:
    """Return seconds of all stages together by figure, from terms of each, which may be columns.

    ``slowest`` are seconds of a message over each border that may be the slowest, ``sends`` add up to those over all.
    """
    chunks = of_chunks(evaluator)
    return {
        **{end: _largest([stage[term] for stage in numbers]) for end, term in terms_of_stages(evaluator).items()},
        "sum": sum(stage[chunks["slowest"]] for stage in numbers),
        "slowest_send": _largest(slowest) if len(slowest) else 0.0, "sends": sum(sends),
    }


def _largest(values: Sequence[Any]) -> Any:
    """Return the largest of numbers, or of columns row by row."""
    if isinstance(values[0], float):
        return max(values)
    import numpy as np

    return np.max(np.stack(values), axis=0)


def seconds_of(figures: Mapping[str, float], stages: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the parameters of all stages together, from their seconds by figure."""
    peaks = sum(stage["matmul_flops"] for stage in stages) // len(stages)
    whole = {end: -int(-value * _PICO // 1) for end, value in figures.items()}
    return {**{f"{OF_ALL_STAGES}{end}": value for end, value in whole.items()}, f"{OF_ALL_STAGES}matmul_flops": peaks}
