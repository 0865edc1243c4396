"""Recompute modes that are tried: all sets of modules of the implementation that differ in what they keep."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.formulas import formulas
from shardmath.compiler.expressions.graph import Graph, ordered
from shardmath.configuration.job import without_effect
from shardmath.files.cached import cached_text, key_of, source_of, sources_digest
from shardmath.generated.definitions import RECOMPUTE_MODES, RECOMPUTE_REGIONS, RECOMPUTE_WITHIN
from shardmath.search.spaces import Part


def recompute_modes(part: Part) -> tuple[str, ...]:
    """Return the modes that differ for the model of ``part``: every set of modules, and full recompute.

    A module is left out where no formula of memory or time has its switch, with the shape of the model put in, and
    beside another module that it lies in.
    """
    fixed = part.evaluator.fixed
    idle = {*without_effect(part.evaluator), *(name for name, value in fixed.items() if value == 0)}
    switches = {name: switch for name, switch in RECOMPUTE_REGIONS.items() if switch not in idle}
    switches = {name: switch for name, switch in switches.items() if not _lacks(part.fixed, name)}
    if switches.keys() - RECOMPUTE_MODES.keys():  # those of expert layers and latent attention
        asked = _asked_for(part, switches.values())
        switches = {name: switch for name, switch in switches.items() if switch in asked}
    full = () if "recompute_full" in idle else ("full",)
    usual = [mode for mode in RECOMPUTE_MODES if mode in ("none", *full) or {*mode.split("+")} <= switches.keys()]
    return tuple(dict.fromkeys((*usual, *_sets(tuple(switches)))))


def _lacks(model: Mapping[str, int], region: str) -> bool:
    """Check if a model has no layer with a module."""
    if not model["num_experts"]:
        return False
    sparse = model["first_dense_layers"] == 0 and model["moe_layer_step"] == 1
    return (region == "mlp" and sparse) or (region == "shared_experts" and not model["shared_expert_ffn_hidden_size"])


def named_alike(mode: str) -> str:
    """Return the mode with its modules in their usual order."""
    names = mode.split("+")
    return "+".join(name for name in RECOMPUTE_REGIONS if name in names) or mode


def _sets(regions: tuple[str, ...]) -> Iterator[str]:
    for count in range(1, len(regions) + 1):
        for names in combinations(regions, count):
            if not any({*RECOMPUTE_WITHIN.get(name, ())} & {*names} for name in names):
                yield "+".join(names)


def _asked_for(part: Part, switches: Collection[str]) -> set[str]:
    """Return the switches left in the formulas when all fixed values are put in; searched once, and kept."""
    source = "\n".join(map(source_of, (part.evaluator.terms, part.evaluator.times)))
    values = {name: value for name, value in part.fixed.items() if name not in switches}

    def left() -> str:
        graph, wanted = Graph(), ("peak", "step.time")
        known = formulas(source, graph, wanted, {name: graph.number(value) for name, value in values.items()})
        nodes = ordered(known.terms[name] for name in wanted)
        return json.dumps(sorted({str(node.value) for node in nodes if node.op == ops.NAME} & {*switches}))

    key = key_of(sources_digest(), source, sorted(values.items()), sorted(switches))
    return set(json.loads(cached_text("switches", f"{key}.json", left)))
