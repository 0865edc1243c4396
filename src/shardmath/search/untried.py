"""Layouts that a search did not try, each with the option that tries them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardmath.answers import Answer
from shardmath.configuration.choosing import has_own_pipeline, options_of
from shardmath.configuration.run import Search
from shardmath.input.parameters import UNEVEN
from shardmath.search.further import further_kernels, further_switches
from shardmath.search.offered import left_out
from shardmath.search.spaces import Part
from shardmath.search.spaces.declared import IMPLEMENTATION
from shardmath.search.stages import ACCOUNTED


@dataclass(frozen=True)
class Untried(Answer):
    """Layouts that were not tried."""

    what: str
    """The layouts."""
    option: str
    """The option that tries them."""


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_OTHERS = Untried("other kernels, optimizers and precisions", "--kernel, --gradients, --zero-stage")
_SWITCHES = Untried("all switches that leave the numbers of a training as they are", _flag("every_switch"))


def untried(parts: tuple[Part, ...]) -> tuple[Untried, ...]:
    """Return the untried parts of a search that its implementations have."""
    names = dict.fromkeys(part.evaluator.implementation for part in parts)
    return tuple(dict.fromkeys(item for name in names for item in _untried(
        tuple(part for part in parts if part.evaluator.implementation == name))))


def impossible(search: Search) -> tuple[Untried, ...]:
    """Return the combinations of implementations and options of kernels that cannot be."""
    return tuple(Untried(f"{', '.join(f'{axis} {option}' for axis, option in item.options.items())}: {item.reason}",
                         "--implementation, --kernel" if IMPLEMENTATION in item.options else "--kernel")
                 for item in left_out(search))


def switches_left(search: Search, parts: Sequence[Part]) -> tuple[Untried, ...]:
    """Return all switches of a search by time that are as usual, as one untried part; nothing if there are none."""
    if search.every_switch or not all(part.timed and part.sharing is None for part in parts):
        return ()
    for part in parts:
        own = replace(search, implementation=part.evaluator.implementation)
        if further_switches(own, part, {axis.name for axis in part.axes}) or further_kernels(own):
            return (_SWITCHES,)
    return ()


def _untried(parts: tuple[Part, ...]) -> Iterator[Untried]:
    implementation = parts[0].evaluator.implementation
    fixed = set.intersection(*({*part.evaluator.fixed} for part in parts))
    axes = {axis.name for part in parts for axis in part.axes}
    pipelines = any(max(axis.labels) != 1 for part in parts for axis in part.axes
                    if axis.name == "pipeline_parallel") and "pipeline_parallel" not in fixed
    own = [item for item in parts[0].untried if all(item in part.untried for part in parts)]
    yield from (Untried(*item) for item in own)
    stages = () if own else options_of(implementation, "stages")
    uneven = (pipelines and "uneven" in stages and not has_own_pipeline(implementation)
              and "first_stage_layers" not in axes)
    if uneven and not axes & {*ACCOUNTED}:
        yield Untried("other stages than those asked for", "without " + ", ".join(map(_flag, UNEVEN)))
    elif uneven:
        yield Untried("stages of other sizes than an even share, a shorter last one, and embedding or loss as layers",
                      f"{_flag('first_stage_layers')}, {_flag('last_stage_layers')}")
    if pipelines and "listed" in stages:
        yield Untried("an explicit list of layers per stage", "explain --pipeline-layout")
    if "virtual_pipeline" in axes:
        yield Untried("chunks per rank beside the divisors of the layers", "--vpp")
        if ("interleaved" in options_of(implementation, "schedule") and not has_own_pipeline(implementation)
                and "microbatch_group" not in axes):
            yield Untried("groups of micro-batches other than one per stage", _flag("microbatch_group"))
    if "expert_tensor_parallel" in axes:
        yield Untried("experts split over more ranks than a node has", "--etp")
    if len(options_of(implementation, "recompute_method")) > 1 and "recompute_num_layers" not in axes:
        yield Untried("full recompute of some layers, or of groups of layers",
                      f"{_flag('recompute_num_layers')}, --kernel recompute_method=...")
    yield _OTHERS
