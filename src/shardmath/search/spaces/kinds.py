"""Spaces on several kinds of GPUs: what their layouts keep, and values that each stage has of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardmath.account.kinds import Fleet, kinds_of_stages, largest_stage
from shardmath.account.mixed import pipeline_of
from shardmath.account.pipelines import Pipeline
from shardmath.compiler.evaluators import Evaluator
from shardmath.configuration.choosing import options_of
from shardmath.configuration.stages import ANY
from shardmath.machines import Cluster
from shardmath.search.spaces.declared import Axis, Constraint

#: Parameter and rule, in words, of the constraint that stages are on one kind of GPU each.
_SAID = ("pipeline_parallel", "must give each kind of GPU whole stages of num_gpus / pipeline_parallel of them, and"
         " each stage a layer, in equal chunks: tensor, context and data parallelism over several kinds are not counted"
         " yet")


@dataclass(frozen=True)
class OnKinds:
    """The GPUs of stages on several kinds of them, by whose times layers are shared out; see ``Sharing``."""

    fleet: Fleet
    words = "on several kinds of GPUs"

    def pipeline(self, evaluator: Evaluator, values: Mapping[str, int]) -> Pipeline:
        """See ``Sharing``."""
        return pipeline_of(evaluator, self.fleet, values)

    def any_stage(self, evaluator: Evaluator) -> Mapping[str, int]:
        """See ``Sharing``."""
        for kind in self.fleet.cluster.kinds:
            self.fleet.machine(evaluator, kind)
        return ANY

    def constraints(self, fixed: Mapping[str, int | str]) -> list[Constraint]:
        """See ``Sharing``: a pipeline has all GPUs, in stages of one kind each."""
        cluster = self.fleet.cluster
        total, shared = cluster.num_gpus, largest_stage(cluster)
        kinds_of_stages(cluster, int(fixed.get("num_gpus", total)), int(fixed.get("pipeline_parallel", total)))
        stages = f"divides({total // shared}, pipeline_parallel) and divides(pipeline_parallel, {total})"
        return [Constraint("num_gpus", f"num_gpus == {total}", automatic=True),
                Constraint("gpus_of_stages", f"{stages} and divides(virtual_pipeline, num_layers)"
                           " and pipeline_parallel * virtual_pipeline <= num_layers", automatic=True, said=_SAID)]

    def untried(self, evaluator: Evaluator, axes: Iterable[Axis]) -> tuple[tuple[str, str], ...]:
        """See ``Sharing``."""
        chunks = "interleaved" in options_of(evaluator.implementation, "schedule") and not any(
            axis.name == "virtual_pipeline" for axis in axes)
        return (("other orders of the kinds", "kinds of the cluster file"),
                ("stages without a layer", "explain --pipeline-layout"),
                *([("several chunks of layers on a GPU", "--vpp")] if chunks else []))


def on_kinds(cluster: Cluster, declared: Iterable[str]) -> OnKinds | None:
    """Return the GPUs of the stages on a cluster of several kinds; None where all are alike."""
    return OnKinds(Fleet(cluster, tuple(sorted(declared)))) if cluster.kinds else None
