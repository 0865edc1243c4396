"""Who shares out the layers of each layout, where stages have machines of their own: by what the cluster is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from shardmath.account.pipelines import Pipeline
from shardmath.compiler.evaluators import Evaluator
from shardmath.machines import Cluster
from shardmath.search.spaces.declared import Axis, Constraint
from shardmath.search.spaces.kinds import on_kinds


class Sharing(Protocol):
    """Machines of stages, and the best list of layers for each layout on them."""

    @property
    def words(self) -> str:
        """Where layouts have lists of their own, in words of an error."""

    def pipeline(self, evaluator: Evaluator, values: Mapping[str, int]) -> Pipeline:
        """Return the pipeline with the best layers. Raises InputError where a figure is not known."""

    def any_stage(self, evaluator: Evaluator) -> Mapping[str, int]:
        """Return any legal values of what each stage has of its own. Raises InputError where a figure is missing."""

    def constraints(self, fixed: Mapping[str, int | str]) -> list[Constraint]:
        """Return the constraints of such pipelines. Raises InputError for a ``fixed`` size that meets none of them."""

    def untried(self, evaluator: Evaluator, axes: Iterable[Axis]) -> tuple[tuple[str, str], ...]:
        """Return stages that no layout of some axes has, each in words with the option that tries it."""


def sharing_of(cluster: Cluster, declared: Iterable[str]) -> Sharing | None:
    """Return who shares out layers on a cluster, where parameters are ``declared``; None where stages are alike."""
    return on_kinds(cluster, declared)
