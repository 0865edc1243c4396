"""Layouts of a sweep on a cluster with measured links: their times with the nodes placed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shardmath.account.placement import placed
from shardmath.account.time import link_parameters
from shardmath.compiler.evaluators import find
from shardmath.machines import Cluster
from shardmath.search.layout import Layout, layout_of
from shardmath.search.nests.configurations import Configuration


def placed_layouts(configurations: Iterable[Configuration], cluster: Cluster) -> tuple[Layout, ...]:
    """Layouts, the fastest first where nodes of a ``cluster`` with measured links are placed for each of them.

    Raises InputError for a job that needs more nodes than have measured links.
    """
    layouts = [
        replace(layout_of(item), placed_seconds=_placed_seconds(item, cluster)) for item in configurations
    ]
    return tuple(sorted(layouts, key=lambda item: item.placed_seconds or 0.0))


def _placed_seconds(configuration: Configuration, cluster: Cluster) -> float | None:
    """Return seconds of a step in the best order of the nodes; None where no time is known."""
    if not configuration.part.timed or cluster.links is None:
        return None
    if configuration.pipeline is not None:
        return configuration.pipeline.placed_seconds()
    own = configuration.part.evaluator
    evaluator = find(own.implementation, {**own.choices, "links": "measured"})
    values = configuration.values
    fastest = dict.fromkeys(link_parameters(evaluator), values["network_bandwidth"])
    return placed(evaluator, cluster, {**values, **fastest, "pipeline_rank": 0})[0].seconds


def is_fastest(layouts: tuple[Layout, ...], fitting: int) -> bool:
    """Return True if no other of ``fitting`` layouts is faster than the first of ``layouts``, wherever its nodes are.

    Layouts were kept by their times with every link as fast as the fastest, which no order of nodes undercuts.
    """
    first, bounds = layouts[0].placed_seconds, [item.step_seconds for item in layouts if item.step_seconds is not None]
    return first is not None and (len(layouts) >= fitting or first <= max(bounds))
