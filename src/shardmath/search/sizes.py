"""Sizes that tell layouts apart, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.generated.definitions import ABSENT_DEGREES, CHOICES
from shardmath.input.parameters import UNEVEN
from shardmath.search.further import SWITCHES, switched
from shardmath.search.layout import schedule_of
from shardmath.search.nests.configurations import Configuration
from shardmath.search.spaces.declared import IMPLEMENTATION

#: Sizes that tell layouts apart, in the usual order; ``recompute`` is the name of a mode.
AXES = ("tensor_parallel", *ABSENT_DEGREES, "context_parallel", "pipeline_parallel", "virtual_pipeline",
        "expert_parallel", "expert_tensor_parallel", "micro_batch_size", "sequence_parallel", "recompute")
#: How layers are shared out, 0 where all stages have as many, and the order of passes.
FOLLOWING = (*UNEVEN, "schedule")


def sizes_of(configuration: Configuration) -> dict[str, int | str]:
    """Return the sizes of a configuration, with its implementation and kernels where several were tried."""
    recompute = configuration.labels["recompute"]
    values = {**configuration.values, "recompute": recompute, "schedule": schedule_of(configuration)}
    sizes = {name: values.get(name, 1) if name in ABSENT_DEGREES else values[name] for name in (*AXES, *FOLLOWING)}
    layers = ",".join(map(str, configuration.layers))
    sizes |= {**switched(configuration), **configuration.part.labels}
    if SWITCHES.keys() & {axis.name for axis in configuration.part.axes}:  # kernels that nobody asked for
        sizes = {name: size for name, size in sizes.items() if not _is_idle(name, sizes)}
    return {**sizes, "pipeline_layout": layers} if layers else sizes


def programs_in(layout: Mapping[str, int | str]) -> dict[str, str]:
    """Return what chooses formulas among sizes: the implementation where several were tried, and kernels by axis."""
    named = {IMPLEMENTATION: str(layout[IMPLEMENTATION])} if layout.get(IMPLEMENTATION) else {}
    return {**named, **kernels_in(layout)}


def kernels_in(layout: Mapping[str, int | str]) -> dict[str, str]:
    """Return the kernels among sizes, by axis."""
    return {name: option for name, option in layout.items()
            if isinstance(option, str) and name in CHOICES and name not in FOLLOWING}


def as_arguments_of_explain(layout: Mapping[str, int | str]) -> dict[str, Any]:
    """Return the arguments of ``explain`` for some sizes, without zeros and without an order where no stages are."""
    kernels = kernels_in(layout)
    arguments: dict[str, Any] = {name: size for name, size in layout.items()
                                 if name not in kernels and (name not in FOLLOWING or size)}
    if kernels:
        arguments["kernels"] = kernels
    if layout["pipeline_parallel"] == 1:
        arguments.pop("schedule", None)
    return {**arguments, "sequence_parallel": bool(layout["sequence_parallel"])}


def _is_idle(axis: str, layout: Mapping[str, Any]) -> bool:
    """Tell whether a layout has nothing that an axis of kernels chooses: it is then as without it."""
    if axis == "recompute_method":
        groups = layout.get("recompute_num_layers", 1)
        return bool(layout["recompute"] != "full" or (layout[axis] == "uniform" and groups == 1))
    return axis == "context" and bool(layout["context_parallel"] == 1)
