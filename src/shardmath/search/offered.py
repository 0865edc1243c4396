"""The layouts that an implementation offers for a job: the spaces that every command searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shardmath.account.time import as_cluster, time_unknown
from shardmath.compiler.evaluators import changed_choices
from shardmath.configuration.defaults import default_implementation
from shardmath.configuration.settings import SELECTIVE, recompute_mode, recompute_switches
from shardmath.divisors import divisors
from shardmath.errors import InputError
from shardmath.generated.definitions import (
    CHOICES,
    IMPLEMENTATIONS,
    RECOMPUTE_REGIONS,
    SCHEDULES,
    SPLIT_BACKWARD,
)
from shardmath.input.parameters import checked
from shardmath.models.model import Model
from shardmath.search.layout import RANKINGS
from shardmath.search.modes import recompute_modes
from shardmath.search.spaces import Space
from shardmath.search.spaces.standard import layouts, ranked
from shardmath.search.stages import chunk_counts, has_uneven, with_uneven

#: Choices of kernels that follow from the layout.
VARIED = ("schedule", "stages", "pipeline", "recompute_saves")

#: Where a space declares what a person gives as an argument of its own.
_SECTIONS = ("axes", "fixed", "derived", "kernels")


def offered(model: Model, gpu: Any, num_gpus: int, *, rank_by: str | None = None, **asked: Any) -> tuple[Space, ...]:
    """The spaces of a job, with what is asked of each ranked.

    ``asked`` are the arguments of ``sweep``: an axis that they name has these candidates, any other all that the
    implementation has. The best is the fastest where all speeds are known, unless ``rank_by`` says otherwise. Raises
    InputError as ``layouts`` does.
    """
    implementation = asked.get("implementation") or default_implementation(model)
    changed_choices(implementation)
    cluster = as_cluster(gpu, asked.pop("network", None))
    found = []
    for pipeline in _pipelines(model, num_gpus, implementation, asked):
        for mode in _kinds_of_recompute(implementation, pipeline.get("schedule"), asked):
            experts = _experts(model, num_gpus, asked.get("node_size") or cluster.node_size, implementation, asked)
            space = layouts(model, cluster, num_gpus, **{**asked, **experts, **pipeline, **mode})
            if pipeline["virtual_pipeline"] != (1,) or pipeline["pipeline_parallel"] != (1,):
                space = with_uneven(space) if has_uneven(implementation, asked) else space
            found.append(_with_modes(space, asked) if mode.get("recompute") is None else space)
    timed = rank_by == "time" or (
        rank_by is None and not time_unknown(found[0].parts()[0].evaluator, cluster, num_gpus))
    return tuple(ranked(space, RANKINGS["time" if timed else "memory"]) for space in found)


def _pipelines(
    model: Model, num_gpus: int, implementation: str, asked: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Pipelines that one evaluator each knows, as arguments of ``layouts``: numbers of stages, chunks, a schedule."""
    stages: tuple[int, ...] | None = asked.get("pipeline_parallel")
    stages = None if stages is None else tuple(stages)
    several = tuple(size for size in stages or divisors(checked("num_gpus", num_gpus)) if size > 1)
    allowed = IMPLEMENTATIONS[implementation]["allowed"].get("schedule", CHOICES["schedule"][1])
    schedule = asked.get("schedule") or (asked.get("kernels") or {}).get("schedule")
    chunks = asked.get("virtual_pipeline")
    own_pipeline = "torch" in IMPLEMENTATIONS[implementation]["allowed"].get("pipeline", CHOICES["pipeline"][1])
    if own_pipeline:  # FSDP2 without a pipeline is another program than with one
        if schedule is None and (stages is None or 1 in stages) and 1 in (chunks or (1,)):
            yield {"pipeline_parallel": (1,), "virtual_pipeline": (1,)}
        for name in allowed if schedule is None else (schedule,):
            sizes = _chunks(name, chunks, (2, 3))
            if several and sizes:
                yield {"pipeline_parallel": several, "virtual_pipeline": sizes, "schedule": name}
        return
    if "interleaved" in allowed and schedule in (None, "interleaved"):
        several_chunks = chunk_counts(model, has_uneven(implementation, asked))
        counts = chunks or ((1, *several_chunks) if schedule is None else several_chunks)
        if counts:
            yield {"pipeline_parallel": stages, "virtual_pipeline": (1,) if stages == (1,) and not chunks else counts}
            return
    for name in allowed if schedule is None else (schedule,):
        # Without a pipeline all orders of passes are one.
        degrees = stages if name == allowed[0] or stages is not None else several
        if degrees != ():
            yield {"pipeline_parallel": degrees, "virtual_pipeline": tuple(chunks or (1,)),
                   "schedule": asked.get("schedule") if name == schedule or len(allowed) == 1 else name}


def _chunks(schedule: str, asked: Sequence[int] | None, usual: Sequence[int]) -> tuple[int, ...]:
    """Numbers of chunks that a schedule has."""
    own = SCHEDULES[schedule]
    sizes = tuple(usual) if own is None and schedule != "gpipe" else (own or 1,)
    return sizes if asked is None else tuple(asked)


def _experts(
    model: Model, num_gpus: int, node_size: int, implementation: str, asked: Mapping[str, Any],
) -> dict[str, Any]:
    """Numbers of ranks that share out one expert: those inside a node, unless they are asked for."""
    fixed = IMPLEMENTATIONS[implementation]["fixed"]
    if not model.num_experts or "expert_tensor_parallel" in fixed or asked.get("expert_tensor_parallel") is not None:
        return {}
    return {"expert_tensor_parallel": tuple(size for size in divisors(num_gpus) if size <= node_size)}


def _kinds_of_recompute(
    implementation: str, schedule: str | None, asked: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Recompute of whole layers or modules, and recompute that keeps outputs of operations, as arguments."""
    yield {}
    saves = IMPLEMENTATIONS[implementation]["allowed"].get("recompute_saves", CHOICES["recompute_saves"][1])
    if asked.get("recompute") is None and "ops" in saves and schedule not in SPLIT_BACKWARD:
        yield {"recompute": (SELECTIVE,)}


def _with_modes(space: Space, asked: Mapping[str, Any]) -> Space:
    """The space with all recompute modes, unless they are asked for; modules asked for by name go with each."""
    if asked.get("recompute") is not None:
        return space
    part, = space.parts()
    named = {switch: asked.get(switch, 0) for switch in RECOMPUTE_REGIONS.values()}
    modes: dict[tuple[int, ...], str] = {}
    for mode in recompute_modes(part):
        whole = mode if mode == "full" else recompute_mode(mode, named)
        modes.setdefault(tuple(recompute_switches(whole).values()), whole)
    return replace(space, axes={**space.axes, "recompute": tuple(modes.values())})


@contextmanager
def as_arguments(num_gpus: int) -> Iterator[None]:
    """Errors in what a space declares, under the name of the argument that it was declared by."""
    try:
        yield
    except InputError as error:
        section, _, name = error.field.partition(".")
        if not name or section not in _SECTIONS:
            raise
        if name == "data_parallel":
            rule = "must leave products of sizes below 2^53, for exact arithmetic: name the sizes to try for some axes"
            raise InputError("num_gpus", num_gpus, rule) from None
        raise InputError(name, error.value, error.rule, error.nearest) from None
