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
from shardmath.search.spaces import Best, Space
from shardmath.search.spaces.questions import MOST

#: Layouts that are kept for each that is shown: those that links slow down less may be behind it without links.
CANDIDATES = 8


def with_candidates(space: Space) -> Space:
    """Return a space that keeps more of the best layouts, where links are measured."""
    if getattr(space.cluster, "links", None) is None:
        return space
    return replace(space, questions=tuple(
        replace(question, count=min(MOST, CANDIDATES * question.count)) if isinstance(question, Best) else question
        for question in space.questions))


def placed_layouts(configurations: Iterable[Configuration], cluster: Cluster, top: int) -> tuple[Layout, ...]:
    """Return the ``top`` fastest of some layouts where nodes of a ``cluster`` with measured links are placed for each.

    ``configurations`` are sorted by their times with every link as fast as the fastest, which no order of nodes
    undercuts: once so many are placed that none of the rest can be faster, the rest is left alone. Raises InputError
    for a job that needs more nodes than have measured links.
    """
    best: list[Layout] = []
    for layout, item in ((layout_of(item), item) for item in configurations):
        if len(best) == top and _seconds(best[-1]) <= (layout.step_seconds or 0.0):
            break
        best = sorted([*best, replace(layout, placed_seconds=_placed_seconds(item, cluster))], key=_seconds)[:top]
    return tuple(best)


def are_fastest(layouts: tuple[Layout, ...], last: Configuration, fitting: int, kept: int) -> bool:
    """Return True if none of ``fitting`` layouts but ``layouts`` is faster than one of these, wherever its nodes are.

    They are the fastest of ``kept`` layouts, of which ``last`` has the longest time with the fastest links.
    """
    bound = layout_of(last).step_seconds
    return kept >= fitting or (bound is not None and _seconds(layouts[-1]) <= bound)


def _seconds(layout: Layout) -> float:
    return layout.placed_seconds or 0.0


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
