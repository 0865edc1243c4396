"""Changes of a configuration besides the sizes of its layout: precision, ZeRO stage, kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardmath.configuration.choosing import chunks_of, options_of
from shardmath.configuration.job import Job
from shardmath.configuration.settings import GRADIENT_BYTES
from shardmath.configuration.zero import FIRST_THROUGH, SWITCHES, THROUGH
from shardmath.errors import InputError, nearest_names
from shardmath.generated.definitions import ARCHITECTURE, ASKED, CHOICES

#: The kernel axis that is tried without being asked for, with the options that are the same optimizer.
_TRIED: Mapping[str, tuple[str, ...]] = {
    "optimizer": ("adamw", "precision_aware", "adamw_8bit", "adamw_8bit_alone", "adamw_8bit_torchao"),
}
#: Axes that follow from other arguments, or say how much has been counted.
_NOT_VARIED = (*ARCHITECTURE, "stages", "peak", "pipeline", "dropout", "biases", "adapter_parts", "adapter_kind",
               "adapter_precision", "adapter_ends", "recompute_method", "recompute_saves",
               *(axis for axis, _ in ASKED.values()))


@dataclass(frozen=True)
class Variant:
    """One thing of a configuration made otherwise: ``name`` was ``before`` and is ``after``.

    ``arguments`` are those of ``explain`` that make it so; ``kernels`` are added to those that there are. ``brings``
    are sizes that come with it.
    """

    name: str
    before: int | str
    after: int | str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)
    brings: Mapping[str, int] = field(default_factory=dict)

    def applied(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with the change put in."""
        kept = {name: value for name, value in arguments.items() if name not in _replaced_by(self.name)}
        return {**kept, **self.arguments, "kernels": {**(kept.get("kernels") or {}), **self.kernels}}


def variants(job: Job, vary: Iterable[str] = ()) -> tuple[Variant, ...]:
    """Everything that can be made otherwise in ``job``, legal or not; ``vary`` are further kernel axes to try.

    Raises InputError for axes that are none, or that cannot be varied.
    """
    axes = _axes(job, vary)
    return (*_precision(job), *_stages(job), *_layers(job),
            *(_schedules(job) if "schedule" in axes else ()), *_kernels(job, axes))


def _precision(job: Job) -> Iterator[Variant]:
    own = job.values["gradient_bytes"]
    if "gradient_bytes" not in job.evaluator.fixed:
        before = next(name for name, size in GRADIENT_BYTES.items() if size == own)
        for name, size in GRADIENT_BYTES.items():
            if size != own:
                yield Variant("gradients", before, name, {"gradients": name})


def _stages(job: Job) -> Iterator[Variant]:
    """Other ZeRO stages, as far as the implementation has them, by itself or through another library."""
    own = sum(job.values[name] for name in SWITCHES)
    implementation = job.evaluator.implementation
    through = {} if implementation in FIRST_THROUGH else THROUGH.get(implementation, {})
    elsewhere = any(job.evaluator.choices[axis] != option for axis, option in through.items())
    fixed = {} if through else job.evaluator.fixed
    for stage in range(1 if elsewhere else 0, len(SWITCHES) + 1):
        if stage != own and all(fixed.get(name, int(stage > place)) == int(stage > place)
                                for place, name in enumerate(SWITCHES)):
            yield Variant("zero_stage", own, stage, {"zero_stage": stage})


def _schedules(job: Job) -> Iterator[Variant]:
    """Other orders of passes, each with as many chunks of layers as it is made for; chunks alone are a size."""
    implementation, own = job.evaluator.implementation, job.evaluator.choices["schedule"]
    if job.values["pipeline_parallel"] == 1 or job.by_rank or own == "interleaved":
        return  # nothing is in order, or the number of chunks would have to change too
    for name in options_of(job.evaluator.implementation, "schedule"):
        if name not in (own, "interleaved"):
            chunks = chunks_of(implementation, {"schedule": name}, None)
            yield Variant("schedule", own, name, {"schedule": name}, brings={"virtual_pipeline": chunks})


def _layers(job: Job) -> Iterator[Variant]:
    """Yield stages of the same size instead of an explicit list."""
    if job.by_rank:
        own = ",".join(str(rank["stage_layers"]) for rank in job.by_rank)
        yield Variant("pipeline_layout", own, "even", {"pipeline_layout": None})


def _axes(job: Job, vary: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the options of kernel axes that are tried."""
    axes = {axis: tuple(option for option in options if option in options_of(job.evaluator.implementation, axis))
            for axis, options in _TRIED.items()}
    for axis in vary:
        if axis not in CHOICES or axis in _NOT_VARIED:
            known = [name for name in CHOICES if name not in _NOT_VARIED]
            raise InputError("vary", axis, "must be a kernel axis that can be chosen", nearest_names(axis, known))
        axes[axis] = options_of(job.evaluator.implementation, axis)
    return axes


def _kernels(job: Job, axes: Mapping[str, tuple[str, ...]]) -> Iterator[Variant]:
    for axis, options in axes.items():
        own = job.evaluator.choices[axis]
        if own in options and axis != "schedule":
            yield from (Variant(axis, own, option, kernels={axis: option}) for option in options if option != own)


def _replaced_by(name: str) -> tuple[str, ...]:
    """Return arguments that a variant takes the place of."""
    return SWITCHES if name == "zero_stage" else ()
