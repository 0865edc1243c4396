"""The answer of a sweep on several kinds of GPUs."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from shardmath.commands.sweep.answer import BrokenRule, GpusOfKind, SweepResult
from shardmath.configuration.run import Search
from shardmath.errors import InputError
from shardmath.generated.definitions import VERDICTS
from shardmath.machines import Cluster
from shardmath.search.kinds import Looked, OnKinds, legal_ones
from shardmath.search.layout import RULES
from shardmath.search.legal import NAMES, Columns
from shardmath.search.offered import VARIED
from shardmath.search.untried import untried_on_kinds

_FITS = VERDICTS[0][0]


def result_on_kinds(asked: Search, cluster: Cluster, looked: Looked, rank_by: str | None) -> SweepResult:
    """Return counts of all layouts, and the best that fit. Raises InputError if no layout is legal."""
    legal_ones(looked, asked.num_gpus)
    if rank_by == "memory":
        rule = "must be time on several kinds of GPUs: layers are shared out by it"
        raise InputError("rank_by", rank_by, rule, "time")
    first = looked.legal[0].configuration.job
    fitting = looked.those(_FITS)
    by_mode: dict[str, OnKinds] = {}
    for item in fitting:
        by_mode.setdefault(item.recompute, item)
    shared = set.intersection(*({*item.configuration.job.values.items()} for item in looked.legal))
    smallest = min(looked.legal, key=lambda item: (max(item.shares), item.time.seconds))
    return SweepResult(
        first.model, cluster.gpu, first.evaluator.title(VARIED), dict(sorted(shared)), looked.tried, len(looked.legal),
        tuple(BrokenRule(field, field, rule, count) for (field, rule), count in looked.broken.items()),
        {name: sum(item.verdict == name for item in looked.legal) for name, _ in VERDICTS}, RULES["time"], "",
        untried_on_kinds(first.evaluator.implementation), tuple(item.layout for item in fitting[: asked.top]),
        {mode: item.layout for mode, item in by_mode.items()}, smallest.layout,
        tuple(GpusOfKind(kind.gpus, kind.cluster.gpu) for kind in cluster.kinds),
    )


def columns_of(looked: Looked) -> Columns:
    """Legal layouts as the columns of other sweeps; sizes of a first or last stage are 0 there: all may differ."""
    rows = [asdict(item.layout) for item in looked.legal]
    rows = [{**row, "step_seconds": float(row["step_seconds"])} for row in rows]
    return {name: np.array([row[name] for row in rows]) for name in NAMES}
