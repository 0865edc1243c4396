"""Every switch of a job that leaves the numbers of a training as they are, as further axes of its spaces."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace

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
from shardmath.search.spaces import Part, Space
from shardmath.search.spaces.candidates import Candidates, DivisorsOf, Range
from shardmath.search.spaces.rows import legal_rows
from shardmath.search.spaces.standard import implementations_of, ranked
from shardmath.search.spaces.usual import BY_TIME
from shardmath.search.stages import ACCOUNTED, has_uneven

#: Field of a search that tries every switch.
EVERY = "every_switch"
#: Shares of the parameters, in percent, that the host updates.
_SHARES = (0, 25, 50, 75, 100)
#: Micro-batches of a group at most.
_GROUP = 64


@dataclass(frozen=True)
class _Program:
    """One program of a search: its evaluator with inputs, and the axes that it has anyway."""

    search: Search
    part: Part
    axes: Container[str]

    @property
    def implementation(self) -> str:
        return self.part.evaluator.implementation

    def may_have(self, name: str) -> bool:
        """Tell whether a switch may be an axis: its formulas have it, and nobody asked for one of its values."""
        axis, option = ASKED.get(name, ("", ""))
        known = option in options_of(self.implementation, axis) if axis else name in self.part.inputs
        asked = name in self.search.others or self.search.asked(name) is not None
        return known and not asked and name not in self.axes and name not in self.part.evaluator.fixed


#: Tells whether a switch makes a difference in a program.
_Condition = Callable[[_Program], bool]


@dataclass(frozen=True)
class _Switch:
    """The candidates of a further axis, of numbers the usual one first, and all conditions under which it is there."""

    candidates: Callable[[Search, Model], Candidates]
    conditions: tuple[_Condition, ...] = ()


def _with(axis: str, option: str) -> _Condition:
    """Return the condition that a kernel is chosen."""
    return lambda program: program.part.evaluator.choices[axis] == option


def _without(axis: str, option: str) -> _Condition:
    """Return the condition that a kernel is not chosen."""
    return lambda program: program.part.evaluator.choices[axis] != option


def _has_stages_of_any_size(program: _Program) -> bool:
    """Tell whether stages at both ends may have any number of layers."""
    return has_uneven(program.implementation, program.search) and all(name in program.axes for name in ACCOUNTED)


def _has_chunks(program: _Program) -> bool:
    """Tell whether stages of a pipeline may have several chunks, whose micro-batches go in groups."""
    return "virtual_pipeline" in program.axes and not has_own_pipeline(program.implementation)


def _knows_the_host(program: _Program) -> bool:
    """Tell whether the time of updates on the host is known."""
    return any_cluster(program.search.gpu, program.search.network).gpu.host_mb_per_s is not None


def _layers(least: int) -> Callable[[Search, Model], Candidates]:
    """Return the candidates of a number of layers: from ``least`` to all but one."""
    return lambda _, model: Range(least, max(least, model.num_layers - 1))


def _on_and_off(*_: object) -> Candidates:
    """Return the candidates of a switch."""
    return (0, 1)


#: Every further axis. Other ways to share out a model overlap as they do, and have no copies of what is whole anyway.
SWITCHES: Mapping[str, _Switch] = {
    "distributed_optimizer": _Switch(_on_and_off),
    "overlap_grad_reduce": _Switch(_on_and_off, (_with("data_parallel", "ddp"),)),
    "overlap_param_gather": _Switch(_on_and_off, (_with("data_parallel", "ddp"),)),
    "optimizer_offload_percent": _Switch(lambda *_: _SHARES, (_knows_the_host,)),
    "data_parallel_replicas": _Switch(lambda *_: DivisorsOf("num_gpus"), (_with("data_parallel", "fsdp"),)),
    "recompute_num_layers": _Switch(_layers(1), (_without("recompute_method", EACH_LAYER),)),
    "microbatch_group": _Switch(
        lambda search, _: (0, *(n for n in divisors(search.global_batch_size) if n <= _GROUP)), (_has_chunks,)),
    "first_stage_layers": _Switch(_layers(0), (_has_stages_of_any_size,)),
    "last_stage_layers": _Switch(_layers(0), (_has_stages_of_any_size,)),
}
#: Axes of kernels whose options compute the same numbers, each with another kernel that it needs, if any.
_KERNELS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "recompute_method": (), "context": (), "reshard": (("data_parallel", "fsdp"),),
}


def further_kernels(search: Search) -> dict[str, tuple[str, ...]]:
    """Return the options to try of axes of kernels, the usual one first, for a search of one implementation.

    Nothing for axes that are asked for, and of the ways to recompute not that which is a case of the others.
    """
    implementation, = implementations_of(search)
    asked, usual = search.kernels or {}, IMPLEMENTATIONS[implementation]["choices"]
    chosen = dict[str, tuple[str, ...]]()
    for axis, needed in _KERNELS.items():
        options = sorted(options_of(implementation, axis), key=lambda option: option != usual[axis])
        if axis not in asked and len(options) > 1 and {*needed} <= {*{**usual, **asked}.items()}:
            chosen[axis] = tuple(option for option in options if option != EACH_LAYER or len(options) == 2)
    return chosen


def further_switches(search: Search, part: Part, axes: Container[str]) -> list[str]:
    """Return the switches of a part that may be axes beside ``axes``."""
    program = _Program(search, part, axes)
    return [name for name, switch in SWITCHES.items()
            if program.may_have(name) and all(holds(program) for holds in switch.conditions)]


def with_switches(space: Space, search: Search) -> Space:
    """Return a space with every switch as an axis that its implementation has and nobody asked for."""
    model = as_model(search.model)
    part = ranked(space, BY_TIME).parts()[0]
    axes = {name: SWITCHES[name].candidates(search, model) for name in further_switches(search, part, space.axes)}
    axes |= {name: (part.fixed[name], 1 - part.fixed[name]) for name in axes
             if SWITCHES[name].candidates is _on_and_off}
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
