"""Layouts that keep an explicit list of layers, one by one: what each rank holds comes from a walk of the schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.account.configured import Configuration
from shardmath.account.time import step_time
from shardmath.commands.moves.peaks import Peak
from shardmath.configuration.choosing import following
from shardmath.configuration.settings import recompute_switches
from shardmath.configuration.stages import listed, parsed
from shardmath.generated.definitions import model_ranks
from shardmath.search.stages import ACCOUNTED

Layout = Mapping[str, int | str]


def layouts_near(
    own: Layout, candidates: Mapping[str, Sequence[int | str]], most: int, sequence: Callable[[int], int],
) -> Iterator[Layout]:
    """Yield all layouts that change at most so many sizes of ``own``, legal or not, each once.

    ``sequence`` says whether sequence parallelism is on at a tensor-parallel size where nobody changes it.
    """
    others = {name: [value for value in values if value != own[name]] for name, values in candidates.items()}
    for count in range(most + 1):
        for names in combinations((name for name in others if name != "sequence_parallel"), count):
            for values in product(*(others[name] for name in names)):
                layout = {**own, **dict(zip(names, values, strict=True))}
                usual = sequence(int(layout["tensor_parallel"]))
                yield {**layout, "sequence_parallel": usual}
                if count < most and len(candidates["sequence_parallel"]) > 1:
                    yield {**layout, "sequence_parallel": 1 - usual}


def columns_of(
    configuration: Configuration, arguments: Mapping[str, Any], near: Iterable[Layout], timed: bool,
) -> dict[str, NDArray[Any]]:
    """Return those of some layouts that are legal, with peak, limit and seconds of a step, as columns.

    ``configuration`` is one of them, ``arguments`` those of ``explain`` that say it.
    """
    job, layout = configuration.job, arguments["pipeline_layout"]
    peak = Peak(job, parsed(layout) if isinstance(layout, str) else tuple(layout))
    assert peak.layout is not None
    machine = configuration.machine_values() if timed else {}
    rows: list[dict[str, Any]] = []
    for sizes in near:
        values = {**job.values, **{name: int(size) for name, size in sizes.items() if name != "recompute"},
                  **recompute_switches(str(sizes["recompute"]))}
        values |= {name: values[leader] for name, leader in following(job.evaluator, arguments).items()}
        ranks = model_ranks(**values)
        values["data_parallel"] = values["num_gpus"] // ranks
        if values["data_parallel"] * ranks == values["num_gpus"] and peak.keeps_rules(values):
            seconds = np.nan
            if timed:
                stages = listed(job.evaluator, values, peak.layout)
                seconds = step_time(job.evaluator, {**values, **machine}, stages).seconds
            own = {name: values[name] for name in ("expert_tensor_parallel", *ACCOUNTED)}
            rows.append({**sizes, **own, "peak": peak.bytes(values), "limit": peak.limit(values),
                         "seconds": seconds})
    names = tuple(rows[0]) if rows else ()
    return {name: np.asarray([row[name] for row in rows]) for name in names}
