"""A pipeline on several kinds of GPUs: its layers shared out over the stages, their memory, and the time of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shardmath.account.judged import LIMIT_TERMS
from shardmath.account.kinds import Fleet, of_chunks
from shardmath.account.pipelines import Pipeline
from shardmath.account.placement import Placement
from shardmath.account.sharing import Stages, least_largest, shared_out
from shardmath.account.stages import StageOnGpu, in_chunks
from shardmath.account.time import StepTime
from shardmath.compiler.evaluators import Evaluator, times_at
from shardmath.configuration.defaults import default_implementation
from shardmath.configuration.job import Job, job
from shardmath.configuration.run import Run
from shardmath.configuration.settings import as_model
from shardmath.configuration.stages import costs, experts_before, further_layers, listed, of_layers, on_rank, parsed
from shardmath.divisors import divisors
from shardmath.errors import InputError
from shardmath.generated.definitions import RANK_LIMITS, num_microbatches, verdict
from shardmath.input.parameters import MACHINE, checked, refuse_illegal
from shardmath.machines import Cluster

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ONCE = ("stage.data_waiting", "stage.optimizer_time")
#: Verdicts by which layers are shared out: the first that some split keeps.
_ALLOWED = (0, 1)


@dataclass(frozen=True)
class Mixed:
    """A job on several kinds of GPUs, and the parameters of the machine that it names itself, which win."""

    job: Job
    fleet: Fleet
    named: Mapping[str, int]
    anchor: None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster of all kinds."""
        return self.fleet.cluster

    @cached_property
    def pipeline(self) -> Pipeline:
        """All values of each stage. Raises InputError where a figure is not known."""
        ranks = [{**self.job.on_rank(rank), **self.named} for rank in range(len(self.job.by_rank))]
        return Pipeline(self.job.evaluator, tuple(self.fleet.timed(self.job.evaluator, ranks)), self.fleet)

    @property
    def values(self) -> dict[str, int]:
        """All parameters of the first stage's machine by name. Raises InputError where a figure is not known."""
        return dict(self._placed[0].stages[0])

    @property
    def placement(self) -> Placement | None:
        """Where nodes with measured links go; None without such links. Raises InputError as ``values``."""
        return self._placed[1]

    @cached_property
    def _placed(self) -> tuple[Pipeline, Placement | None]:
        return self.pipeline.placed()

    def time(self) -> StepTime:
        """Return the time of a step. Raises InputError where a figure is not known."""
        return self._placed[0].time()

    def stages(self, step: StepTime | None) -> tuple[StageOnGpu, ...]:
        """Return every stage with its GPU, its layers and, where the time of a step is known, its own time."""
        microbatches, kinds = num_microbatches(**self.job.values), self.fleet.kinds(self.job.values)
        seconds = [None] * len(kinds) if step is None else [
            times_at(self.job.evaluator.times, stage)["stage.microbatch_time"] for stage in self._placed[0].stages]
        return tuple(
            StageOnGpu(rank, kind.cluster.gpu.name, kind.cluster.gpu.memory_bytes,
                       self.job.values["num_gpus"] // len(kinds), self.job.by_rank[rank]["stage_layers"], own,
                       None if own is None or step is None else microbatches * own / step.seconds)
            for rank, (kind, own) in enumerate(zip(kinds, seconds, strict=True))
        )


def mixed_job(run: Run, cluster: Cluster) -> Mixed:
    """Check a run on several kinds of GPUs; without a list of layers they are shared out so that a step is shortest.

    All stages fit then if they can, else into their memory, else the largest share of memory is least.
    Raises InputError for every value that is not legal.
    """
    if run.anchor is not None:
        raise InputError("anchor", str(run.anchor), "must not be given with several kinds of GPUs: it is of one")
    implementation = default_implementation(as_model(run.model)) if run.implementation is None else run.implementation
    links = {} if cluster.links is None else {"links": "measured"}
    kernels = cluster.kernels(implementation, {**links, **(run.kernels or {})},
                              {**run.others, "node_size": run.node_size})
    machine = {name: checked(name, value) for name, value in run.others.items() if name in MACHINE}
    asked = {"num_gpus": cluster.num_gpus if run.num_gpus is None else checked("num_gpus", run.num_gpus),
             "pipeline_parallel": checked("pipeline_parallel", run.pipeline_parallel)}
    fleet, ranks = Fleet(cluster, tuple(run.others)), asked["pipeline_parallel"]
    first, layers = fleet.kinds(asked)[0].cluster, as_model(run.model).num_layers
    chunks = checked("virtual_pipeline", run.others.get("virtual_pipeline", 1))
    refuse_other_chunks(run.pipeline_layout, ranks, chunks, layers)
    others = {name: value for name, value in run.others.items() if name not in machine}
    changed = replace(
        run, gpu=first.gpu, network=None, num_gpus=asked["num_gpus"], node_size=first.node_size,
        implementation=implementation, kernels=kernels, others={**cluster.memory_parameters, **others},
        pipeline_layout=run.pipeline_layout or even(layers // chunks, ranks) * chunks,
    )
    made = Mixed(_placed(job(changed), fleet), fleet, machine)
    if run.pipeline_layout is not None or ranks == 1:
        return made
    split = in_chunks(best_layers(made.job.evaluator, made.pipeline.stages), made.job.values)
    return replace(made, job=_placed(job(replace(changed, pipeline_layout=split)), fleet))


def _placed(asked: Job, fleet: Fleet) -> Job:
    """Return the same job with the memory, the libraries and the nodes of each stage's own GPUs.

    Raises InputError for what is not legal on one of them.
    """
    kinds = fleet.kinds(asked.values)
    placed = replace(asked, by_rank=tuple(
        {**own, **fleet.memory(kind)} for own, kind in zip(asked.by_rank, kinds, strict=True)))
    for rank, kind in enumerate(kinds):
        if rank == 0 or kinds[rank - 1] is not kind:
            refuse_illegal(asked.evaluator.terms, placed.on_rank(rank))
    return placed


def pipeline_of(evaluator: Evaluator, fleet: Fleet, values: Mapping[str, int]) -> Pipeline:
    """Return the pipeline with the best layers for ``values`` of all else, which are legal on its first kind.

    Raises InputError where a figure is not known.
    """
    memory = [fleet.memory(kind) for kind in fleet.kinds(values)]

    def with_layers(layers: Sequence[int]) -> tuple[Mapping[str, int], ...]:
        ranks = zip(listed(evaluator, values, layers), memory, strict=True)
        return tuple(fleet.timed(evaluator, [
            {**values, **of_rank, **own, "pipeline_rank": rank} for rank, (of_rank, own) in enumerate(ranks)]))

    chunks = values["virtual_pipeline"]
    stages = with_layers(even(values["num_layers"] // chunks, len(memory)) * chunks)
    return Pipeline(evaluator, with_layers(in_chunks(best_layers(evaluator, stages), values)), fleet)


def refuse_other_chunks(layout: str | Sequence[int] | None, ranks: int, chunks: int, layers: int) -> None:
    """Raise InputError where the chunks of a GPU cannot have, or do not have, a layer or more and equally many."""
    if ranks * chunks > layers:
        rule = f"must be at most num_layers{f' / {chunks}' * (chunks > 1)} = {layers // chunks}: each stage has a layer"
        raise InputError("pipeline_parallel", ranks, f"{rule} or more{' in each chunk' * (chunks > 1)}",
                         str(layers // chunks or 1))
    if layers % chunks:
        near = " or ".join(str(size) for size in divisors(layers) if size * ranks <= layers and size > 1)
        raise InputError("virtual_pipeline", chunks, f"must divide num_layers = {layers} on several kinds of GPUs:"
                         " chunks of unequal layers are not counted yet there", near or "1")
    listed_layers = parsed(layout) if isinstance(layout, str) else layout
    if listed_layers is not None and len(listed_layers) == ranks * chunks and any(
            count != listed_layers[place % ranks] for place, count in enumerate(listed_layers)):
        raise InputError("pipeline_layout", ",".join(map(str, listed_layers)), "must give the chunks of a GPU equally"
                         " many layers on several kinds of GPUs: others are not counted yet there")


def even(layers: int, stages: int) -> tuple[int, ...]:
    """Share out layers to stages that differ by one at most, the first ones longer."""
    return tuple(layers // stages + (rank < layers % stages) for rank in range(stages))


def best_layers(evaluator: Evaluator, stages: Sequence[Mapping[str, int]]) -> tuple[int, ...]:
    """Share out layers so that a step is shortest, among the splits with the best verdict.

    ``stages`` have all values of each stage, with any layers.
    """
    import numpy as np

    from shardmath.compiler.columns import branch_column, term_columns

    chunks, places, counts = stages[0]["virtual_pipeline"], *_pieces(stages[0])
    layers, rows = len(places), _by_layers(evaluator, stages, counts)
    shape, terms = (len(stages), len(counts)), tuple(of_chunks(evaluator).values())
    seconds = [np.broadcast_to(column, shape) for column in term_columns(evaluator.times, (*terms, *_ONCE), rows)]
    totals, *most = (np.broadcast_to(column, shape)
                     for column in term_columns(evaluator.terms, ("stage.total", *RANK_LIMITS), rows))
    memory, passes = [stage["gpu_memory"] for stage in stages], num_microbatches(**stages[0])
    limits = {word: column.ravel() for word, column in zip(LIMIT_TERMS, most, strict=True)}
    verdicts = branch_column(verdict, {"estimate": totals.ravel(), **limits}, totals.size).reshape(shape)
    turns = (passes - 1, passes * max(0, chunks - 2), passes * (chunks > 1))[:len(terms)]
    asked = Stages(places, tuple(seconds[:len(terms)]), tuple(seconds[len(terms):]), verdicts >= 0, turns)

    def stretched(split: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(count * chunks for count in split)

    for worst in _ALLOWED:
        best = shared_out(replace(asked, fits=verdicts <= worst), layers)
        if best is not None:
            return stretched(best)
    shares = totals / np.array(memory)[:, None]
    best = shared_out(replace(asked, fits=shares <= least_largest(places, shares, layers)[0]), layers)
    assert best is not None
    return stretched(best)


def _pieces(values: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pieces of the model that differ in their layers: dense ones and those with experts, a row for each.

    With them comes the row of the piece behind so many layers that has n, in column n - 1. Of several chunks on a GPU
    all layers are alike, and a layer of each chunk is one of them.
    """
    import numpy as np

    chunks, before = values["virtual_pipeline"], experts_before(values)
    layers, experts = values["num_layers"] // chunks, np.array(before[::chunks])
    starts, counts = np.divmod(np.arange(layers * layers), layers)
    ends = np.minimum(starts + counts + 1, layers)
    expert = experts[ends] - experts[starts]
    pieces, places = np.unique(np.stack([chunks * (ends - starts) - expert, expert], axis=1), axis=0,
                               return_inverse=True)
    return places.reshape(layers, layers), pieces


def _by_layers(
    evaluator: Evaluator, stages: Sequence[Mapping[str, int]], pieces: NDArray[np.int64],
) -> dict[str, Any]:
    """Return the values of all stages as a column, and in a row those with each piece of the model."""
    import numpy as np

    dense, expert = pieces.T.astype(np.float64)
    if stages[0]["virtual_pipeline"] > 1:
        own = [_walked(evaluator, stage, pieces[:, 0].tolist()) for stage in stages]
    else:
        own = [
            of_layers(stage, dense, expert, stage["in_flight"] * dense, stage["in_flight"] * expert,
                      further_layers(evaluator, stage) if rank == len(stages) - 1 else (0, 0))
            for rank, stage in enumerate(stages)
        ]
    rows: dict[str, Any] = {}
    for name in stages[0]:
        values = [float(stage[name]) for stage in stages]
        rows[name] = values[0] if len(set(values)) == 1 else np.array(values)[:, None]
    return {**rows, **{name: np.array([stage[name] for stage in own]) for name in own[0]}}


def _walked(evaluator: Evaluator, stage: Mapping[str, int], layers: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """Return what a stage of several chunks holds with each number of layers, from a walk of its schedule."""
    import numpy as np

    chunks, rank, cost = stage["virtual_pipeline"], stage["pipeline_rank"], costs(evaluator, stage)
    rows = [on_rank(evaluator, stage, rank, [count // chunks] * chunks, [0] * chunks, cost) for count in layers]
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
