"""Every switch of a job that leaves the numbers of a training as they are, as further axes of its spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from shardmath.configuration.choosing import EACH_LAYER, has_own_pipeline, options_of
from shardmath.configuration.run import Search
from shardmath.configuration.settings import as_model
from shardmath.divisors import divisors
from shardmath.generated.definitions import ASKED, IMPLEMENTATIONS
from shardmath.machines.files import any_cluster
from shardmath.models.model import Model
from shardmath.search.nests.configurations import Configuration
from shardmath.search.nests.nest import steps
from shardmath.search.spaces import Space
from shardmath.search.spaces.candidates import Candidates, DivisorsOf, Range
from shardmath.search.spaces.rows import legal_rows
from shardmath.search.spaces.standard import implementations_of, ranked
from shardmath.search.spaces.usual import BY_TIME
from shardmath.search.stages import ACCOUNTED, has_uneven

#: Field of a search that tries every switch.
EVERY = "every_switch"
#: Axes of kernels whose options compute the same numbers.
KERNELS = ("recompute_method", "context", "reshard")
#: Shares of the parameters, in percent, that the host updates.
_SHARES = (0, 25, 50, 75, 100)
#: Micro-batches of a group at most.
_GROUP = 64


def _layers(least: int) -> Callable[[Search, Model], Candidates]:
    """Return the candidates of a number of layers: from ``least`` to all but one."""
    return lambda _, model: Range(least, max(least, model.num_layers - 1))


def _on_and_off(*_: object) -> Candidates:
    """Return the candidates of a switch."""
    return (0, 1)


#: Further axes with their candidates; those of numbers have the usual one first.
SWITCHES: Mapping[str, Callable[[Search, Model], Candidates]] = {
    "distributed_optimizer": _on_and_off,
    "overlap_grad_reduce": _on_and_off,
    "overlap_param_gather": _on_and_off,
    "optimizer_offload_percent": lambda *_: _SHARES,
    "data_parallel_replicas": lambda *_: DivisorsOf("num_gpus"),
    "recompute_num_layers": _layers(1),
    "microbatch_group": lambda search, _: (0, *(n for n in divisors(search.global_batch_size) if n <= _GROUP)),
    "first_stage_layers": _layers(0),
    "last_stage_layers": _layers(0),
}


def further_kernels(search: Search) -> dict[str, tuple[str, ...]]:
    """Return the options to try of axes of kernels, the usual one first, of a search that tries every switch.

    Nothing for axes that are asked for, and of the ways to recompute not that which is a case of the others.
    """
    if not search.every_switch:
        return {}
    implementation, = implementations_of(search)
    usual, chosen = IMPLEMENTATIONS[implementation]["choices"], dict[str, tuple[str, ...]]()
    for axis in KERNELS:
        options = sorted(options_of(implementation, axis), key=lambda option: option != usual[axis])
        if axis == "reshard" and {**usual, **(search.kernels or {})}["data_parallel"] != "fsdp":
            continue
        if axis not in (search.kernels or {}) and len(options) > 1:
            chosen[axis] = tuple(option for option in options if option != EACH_LAYER or len(options) == 2)
    return chosen


def with_switches(space: Space, search: Search) -> Space:
    """Return a space with every switch as an axis that its implementation has and nobody asked for."""
    model, implementation = as_model(search.model), space.implementation
    part = ranked(space, BY_TIME).parts()[0]
    stages = has_uneven(implementation, search) and {*ACCOUNTED} <= space.axes.keys()
    left_out = {*part.evaluator.fixed, *space.axes, *search.others,
                *(name for name in SWITCHES if search.asked(name) is not None)}
    if not stages:
        left_out |= {"first_stage_layers", "last_stage_layers"}
    if "virtual_pipeline" not in space.axes or has_own_pipeline(implementation):
        left_out.add("microbatch_group")
    if part.evaluator.choices["recompute_method"] == EACH_LAYER:
        left_out.add("recompute_num_layers")
    if any_cluster(search.gpu, search.network).gpu.host_mb_per_s is None:  # no time of the host's updates is known
        left_out.add("optimizer_offload_percent")
    sharding = part.evaluator.choices["data_parallel"]
    if sharding != "fsdp":  # a copy more of what is whole on every rank
        left_out.add("data_parallel_replicas")
    if sharding != "ddp":  # others overlap as they do
        left_out |= {"overlap_grad_reduce", "overlap_param_gather"}
    left_out |= {name for name in SWITCHES if name not in part.inputs and name not in ASKED}
    left_out |= {name for name, (axis, option) in ASKED.items() if option not in options_of(implementation, axis)}
    axes = {name: values(search, model) for name, values in SWITCHES.items() if name not in left_out}
    axes |= {name: (part.fixed[name], 1 - part.fixed[name]) for name in axes if SWITCHES[name] is _on_and_off}
    return replace(
        space, axes={**space.axes, **axes},
        derived={name: text for name, text in space.derived.items() if name not in axes},
        fixed={name: value for name, value in space.fixed.items() if name not in axes},
    )


def simplest(item: Configuration) -> Configuration:
    """Return the configuration of the same time and memory with the fewest switches changed, one by one."""
    step = steps(item.part.axes)
    for axis, place in zip(item.part.axes, item.part.places(item.number), strict=True):
        if axis.name in SWITCHES and place:
            other = Configuration(item.part, item.number - place * step[axis.name], item.keys)
            rows = legal_rows(item.part, np.array([other.number]))
            if len(rows) and _alike(other, item):
                item = other
    return item


def simplest_of(items: Iterable[Configuration]) -> list[Configuration]:
    """Return the simplest of each configuration; those that are one then, which floats told apart, once."""
    return [*{(id(item.part), item.number): item for item in map(simplest, items)}.values()]


def switched(item: Configuration) -> dict[str, int]:
    """Return the switches of a configuration that are not as usual, by name."""
    usual = {axis.name: axis.labels[0] for axis in item.part.axes}
    return {name: value for name, value in switches_of(item).items() if value != usual[name]}


def switches_of(item: Configuration) -> dict[str, int]:
    """Return all switches of a configuration, by name."""
    return {axis.name: item.values[axis.name] for axis in item.part.axes if axis.name in SWITCHES}


def _alike(left: Configuration, right: Configuration) -> bool:
    return all(left.terms[name] == right.terms[name] for name in ("step.time", "peak"))
