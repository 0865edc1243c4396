"""One configuration on several kinds of GPUs: its layers shared out over the stages, and the time of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shardmath.account.kinds import kinds_of_stages, machine_asked, machines_of_stages, on_kinds, together
from shardmath.account.sharing import Stages, least_largest, shared_out
from shardmath.account.time import StepTime, step_time
from shardmath.answers import Answer
from shardmath.compiler.evaluators import Evaluator, times_at
from shardmath.configuration.choosing import options_of
from shardmath.configuration.defaults import default_implementation
from shardmath.configuration.job import Job, job
from shardmath.configuration.run import Run
from shardmath.configuration.settings import as_model
from shardmath.configuration.stages import experts_before, of_layers
from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS, num_microbatches, verdict
from shardmath.input.parameters import checked
from shardmath.machines import Cluster, Kind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AXIS, _MIXED = "gpus", "mixed"
_SECONDS = ("stage.microbatch_time", "stage.data_waiting", "stage.optimizer_time")
#: Verdicts by which layers are shared out: the first that some split keeps.
_ALLOWED = (0, 1)


@dataclass(frozen=True)
class StageOnGpu(Answer):
    """One pipeline stage on its kind of GPU."""

    rank: int
    """Pipeline rank."""
    gpu: str
    """Name of its GPU."""
    gpu_memory: int
    """Bytes of memory of its GPU."""
    gpus: int
    """GPUs of the stage."""
    layers: int
    """Layers of the stage."""
    microbatch_seconds: float | None
    """Seconds of one micro-batch, forward and backward; null where no time is known."""
    busy: float | None
    """Share of the step in which the stage works on micro-batches; null with ``microbatch_seconds``."""


@dataclass(frozen=True)
class Mixed:
    """A job on several kinds of GPUs: the kind of each stage and, where no figure is missing, its machine."""

    kinds: tuple[Kind, ...]
    machine: Mapping[str, int]

    def machines(self, asked: Job) -> list[dict[str, int]]:
        """All values of each stage by name. Raises InputError where a figure is not known."""
        machines = machines_of_stages(asked, self.kinds, self.machine)
        return [{**asked.on_rank(rank), **own} for rank, own in enumerate(machines)]

    def time(self, asked: Job) -> StepTime:
        """The time of a step. Raises InputError where a figure is not known."""
        stages = self.machines(asked)
        figures = together(asked.evaluator, stages)
        by_rank = [{**stage, **figures} for stage in stages]
        time = step_time(asked.evaluator, {**asked.values, **by_rank[0]}, by_rank)
        numbers = [times_at(asked.evaluator.times, values) for values in by_rank]
        known = all(values["power_milliwatts"] for values in by_rank), all(
            values["cents_per_gpu_hour"] for values in by_rank)
        energy, cost = (
            sum(stage[f"step.{name}_per_token"] for stage in numbers) / len(numbers) if is_known else 0.0
            for name, is_known in zip(("energy", "cost"), known, strict=True)
        )
        alike = {name: value for name, value in time.machine.items()
                 if all(values[name] == value for values in by_rank)}
        return replace(time, joules_per_token=energy, cost_per_token=cost, machine=alike)

    def stages(self, asked: Job, step: StepTime | None) -> tuple[StageOnGpu, ...]:
        """Every stage with its GPU, its layers and, where the time of a step is known, its own time."""
        microbatches = num_microbatches(**asked.values)
        numbers = [] if step is None else [times_at(asked.evaluator.times, stage) for stage in self.machines(asked)]
        return tuple(
            StageOnGpu(
                rank, kind.cluster.gpu.name, kind.cluster.gpu.memory_bytes, asked.values["num_gpus"] // len(self.kinds),
                asked.by_rank[rank]["stage_layers"], *(
                    (None, None) if step is None else (
                        (own := numbers[rank]["stage.microbatch_time"]), microbatches * own / step.seconds)
                ),
            )
            for rank, kind in enumerate(self.kinds)
        )


def mixed_job(run: Run, cluster: Cluster) -> tuple[Job, Mixed]:
    """Check a run on several kinds of GPUs; without a list of layers they are shared out so that a step is shortest.

    All stages fit then by the 80 % rule if they can, else into their memory, else the largest share of memory is least.
    Raises InputError for every value that is not legal.
    """
    if run.node_size is not None:
        raise InputError("node_size", run.node_size, "must be given as gpus_per_node of each kind of GPU")
    if run.anchor is not None:
        raise InputError("anchor", str(run.anchor), "must not be given with several kinds of GPUs: it is of one")
    implementation = default_implementation(as_model(run.model)) if run.implementation is None else run.implementation
    known = [name for name in IMPLEMENTATIONS if _MIXED in options_of(name, _AXIS)]
    if implementation in IMPLEMENTATIONS and implementation not in known:
        raise InputError("implementation", implementation, f"must be {' or '.join(known)} on several kinds of GPUs:"
                         " others are not counted yet", " or ".join(known))
    asked_axis, place = (run.kernels or {}).get(_AXIS, _MIXED), run.others.get("pipeline_place", 0)
    if asked_axis != _MIXED:
        raise InputError(_AXIS, asked_axis, "must be mixed with several kinds in the cluster file", _MIXED)
    if place:
        rule = "must be 0 on several kinds of GPUs: a stage is on GPUs that follow each other"
        raise InputError("pipeline_place", place, rule, "0")
    gpus = cluster.num_gpus if run.num_gpus is None else checked("num_gpus", run.num_gpus)
    ranks = checked("pipeline_parallel", run.pipeline_parallel)
    kinds = kinds_of_stages(cluster, gpus, ranks)
    layers = as_model(run.model).num_layers
    if ranks > layers:
        rule = f"must be at most num_layers = {layers}: each stage has a layer or more"
        raise InputError("pipeline_parallel", ranks, rule, str(layers))
    machine = machine_asked(run)
    first = kinds[0].cluster
    others = {name: value for name, value in run.others.items() if name not in machine}
    asked = replace(
        run, gpu=first.gpu, network=None, num_gpus=gpus, node_size=first.node_size,
        implementation=implementation, kernels={**(run.kernels or {}), _AXIS: _MIXED},
        others={**first.memory_parameters, **others},
        pipeline_layout=run.pipeline_layout or even(layers, ranks),
    )
    mixed, made = Mixed(kinds, {name: checked(name, value) for name, value in machine.items()}), job(asked)
    made = on_kinds(made, kinds, run)
    if run.pipeline_layout is None and ranks > 1:
        layers_of = best_layers(made.evaluator, mixed.machines(made))
        made = on_kinds(job(replace(asked, pipeline_layout=layers_of)), kinds, run)
    return made, mixed


def even(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of stages that differ by one at most, the first ones longer."""
    return tuple(layers // stages + (rank < layers % stages) for rank in range(stages))


def best_layers(evaluator: Evaluator, stages: Sequence[Mapping[str, int]]) -> tuple[int, ...]:
    """Layers of each stage with which a step is shortest among the splits with the best verdict.

    ``stages`` have all values of each stage, with any layers.
    """
    import numpy as np

    from shardmath.compiler.columns import term_columns

    layers, places, counts = stages[0]["num_layers"], *_pieces(stages[0])
    rows = _by_layers(stages, counts)
    shape = len(stages), len(counts)
    own, *once = (np.broadcast_to(column, shape) for column in term_columns(evaluator.times, _SECONDS, rows))
    totals = np.broadcast_to(term_columns(evaluator.terms, ("stage.total",), rows)[0], shape)
    memory = [stage["gpu_memory"] for stage in stages]
    verdicts = np.array([[verdict(int(size), most) for size in sizes] for sizes, most in zip(
        totals.tolist(), memory, strict=True)])
    asked = Stages(places, own, tuple(once), verdicts >= 0, num_microbatches(**stages[0]))
    for worst in _ALLOWED:
        best = shared_out(replace(asked, fits=verdicts <= worst), layers)
        if best is not None:
            return best
    shares = totals / np.array(memory)[:, None]
    best = shared_out(replace(asked, fits=shares <= least_largest(places, shares, layers)[0]), layers)
    assert best is not None
    return best


def _pieces(values: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All pieces of the model that differ in their layers: dense ones and those with experts, a row for each.

    With them comes the row of the piece behind so many layers that has n, in column n - 1.
    """
    import numpy as np

    layers, experts = values["num_layers"], np.array(experts_before(values))
    starts, counts = np.divmod(np.arange(layers * layers), layers)
    ends = np.minimum(starts + counts + 1, layers)
    expert = experts[ends] - experts[starts]
    pieces, places = np.unique(np.stack([ends - starts - expert, expert], axis=1), axis=0, return_inverse=True)
    return places.reshape(layers, layers), pieces


def _by_layers(stages: Sequence[Mapping[str, int]], pieces: NDArray[np.int64]) -> dict[str, Any]:
    """Values of all stages as a column, and in a row those with each piece of the model."""
    import numpy as np

    dense, expert = pieces.T.astype(np.float64)
    own = [
        of_layers(stage, dense, expert, stage["in_flight"] * dense, stage["in_flight"] * expert,
                  stage["num_mtp_layers"] if rank == len(stages) - 1 else 0)
        for rank, stage in enumerate(stages)
    ]
    rows: dict[str, Any] = {}
    for name in stages[0]:
        values = [float(stage[name]) for stage in stages]
        rows[name] = values[0] if len(set(values)) == 1 else np.array(values)[:, None]
    return {**rows, **{name: np.array([stage[name] for stage in own]) for name in own[0]}}
