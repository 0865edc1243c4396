"""Spaces on several kinds of GPUs: what their layouts keep, and values that each stage has of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shardmath.account.kinds import Fleet, kinds_of_stages, largest_stage
from shardmath.compiler.evaluators import Evaluator
from shardmath.configuration.choosing import options_of
from shardmath.configuration.stages import ANY
from shardmath.machines import Cluster
from shardmath.search.spaces.declared import Axis, Constraint

#: Parameter and rule, in words, of the constraint that stages are on one kind of GPU each.
_SAID = ("pipeline_parallel", "must give each kind of GPU whole stages of num_gpus / pipeline_parallel of them, and"
         " each stage a layer, in equal chunks: tensor, context and data parallelism over several kinds are not counted"
         " yet")


def fleet_of(cluster: Cluster, declared: Iterable[str]) -> Fleet | None:
    """Return the GPUs of the stages on a cluster of several kinds; None where all are alike."""
    return Fleet(cluster, tuple(sorted(declared))) if cluster.kinds else None


def of_kinds(fleet: Fleet, fixed: Mapping[str, int | str]) -> list[Constraint]:
    """Return the constraints of a pipeline on several kinds of GPUs: it has all of them, in stages of one kind each.

    Raises InputError for a ``fixed`` size that meets none of them.
    """
    total, shared = fleet.cluster.num_gpus, largest_stage(fleet.cluster)
    kinds_of_stages(fleet.cluster, int(fixed.get("num_gpus", total)), int(fixed.get("pipeline_parallel", total)))
    stages = f"divides({total // shared}, pipeline_parallel) and divides(pipeline_parallel, {total})"
    return [Constraint("num_gpus", f"num_gpus == {total}", automatic=True),
            Constraint("gpus_of_stages", f"{stages} and divides(virtual_pipeline, num_layers)"
                       " and pipeline_parallel * virtual_pipeline <= num_layers", automatic=True, said=_SAID)]


def any_stage(fleet: Fleet, evaluator: Evaluator) -> dict[str, int]:
    """Return any legal values of what each stage has of its own. Raises InputError where a kind lacks a figure."""
    for kind in fleet.cluster.kinds:
        fleet.machine(evaluator, kind)
    return ANY


def untried_stages(evaluator: Evaluator, axes: Iterable[Axis]) -> tuple[tuple[str, str], ...]:
    """Return stages that no layout of some axes has, each in words with the option that tries it."""
    chunks = "interleaved" in options_of(evaluator.implementation, "schedule") and not any(
        axis.name == "virtual_pipeline" for axis in axes)
    return (("other orders of the kinds", "kinds of the cluster file"),
            ("stages without a layer", "explain --pipeline-layout"),
            *([("several chunks of layers on a GPU", "--vpp")] if chunks else []))
