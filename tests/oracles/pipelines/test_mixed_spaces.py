"""Spaces on several kinds of GPUs: what `explore` answers, against `explain` of every configuration."""

from __future__ import annotations

import pickle
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from shardmath import InputError, explain, explore
from shardmath.account.accounting import Explanation
from shardmath.account.kinds import largest_stage
from shardmath.generated.definitions import VERDICTS
from shardmath.machines.files import cluster_of
from shardmath.search.nests.chosen import nest_of
from shardmath.search.nests.running import run
from shardmath.search.spaces import Best, Constraint, Front, Histogram, Space

NAMES = [name for name, _ in VERDICTS]
GPUS = ("h100-80gb", "a100-80gb", "a100-40gb", "h200")
MODELS: dict[str, dict[str, list[Any]]] = {
    "llama-3.2-1b": {"tensor_parallel": [1, 2, 4, 8, 16], "context_parallel": [1, 2, 3],
                     "virtual_pipeline": [1, 2, 3, 4]},
    "deepseek-v2-lite": {"expert_parallel": [1, 2, 4], "tensor_parallel": [1, 4]},
}
EDGES = (2**33, 2**34, 2**35)


def _explained(space: Space, sizes: dict[str, Any]) -> Explanation | None:
    try:
        return explain(space.model, space.cluster, **{**space.fixed, **sizes})  # type: ignore[arg-type]
    except InputError:
        return None


@pytest.mark.cases(6, 200)
def test_spaces_against_explain(draw: Random) -> None:
    model = draw.choice([*MODELS])
    kinds = [{"gpu": gpu, "gpus": 8 * draw.choice((1, 1, 2))} for gpu in draw.sample(GPUS, 2)]
    cluster = cluster_of({"name": "drawn", "network": draw.choice(("ndr-400", "hdr-200")), "kinds": kinds})
    axes = {"pipeline_parallel": draw.sample([2, 3, 4, 6, 8, 32], 3), "micro_batch_size": [1, 2],
            **{name: draw.sample(values, min(2, len(values))) for name, values in MODELS[model].items()},
            "recompute": draw.sample(["none", "full", "mlp"], 2)}
    fixed = {"global_batch_size": 48, "seq_length": draw.choice((2048, 16384))}
    room = Constraint("room", "stage.total < 80 * 2**30")
    space = Space(axes, model, cluster=cluster, fixed=fixed, constraints=(room,), questions=(
        Best("best", ("step.time", "peak"), 3), Best("each", ("peak",), 1, ("recompute",), "legal"),
        Front("front", ("peak", "step.time"), "uncertain"), Histogram("sizes", "peak", EDGES, "legal"),
    ))
    total, stage = cluster.num_gpus, largest_stage(cluster)
    if not any(total % p == 0 and stage % (total // p) == 0 and p <= explain(model, "h200").model.num_layers
               for p in axes["pipeline_parallel"]):
        with pytest.raises(InputError, match="which no candidate does"):
            explore(space)
        return
    answer = explore(space)
    rows = []
    for sizes in product(*axes.values()):
        item = _explained(space, dict(zip(axes, sizes, strict=True)))
        if item is not None and item.ranks[0].total < 80 * 2**30:
            assert item.time is not None
            rows.append((dict(zip(axes, sizes, strict=True)), item.peak_bytes, item.time.seconds, item.verdict))
    assert answer.size == len([*product(*axes.values())])
    assert (answer.legal, sum(rule.count for rule in answer.broken)) == (len(rows), answer.size - len(rows))
    assert [answer.verdicts[name] for name in NAMES] == [sum(row[3] == name for row in rows) for name in NAMES]
    fitting = sorted((seconds, peak) for _, peak, seconds, verdict in rows if verdict == NAMES[0])
    groups = answer.answers["best"].groups  # type: ignore[union-attr]
    assert [tuple(item.keys.values()) for group in groups for item in group.configurations] == fitting[:3]
    for group in groups:
        for item in group.configurations:
            (own,) = [row for row in rows if row[0] == item.labels]
            assert (item.peak_bytes, item.verdict, item.keys["step.time"]) == (own[1], own[3], own[2])
    for group in answer.answers["each"].groups:  # type: ignore[union-attr]
        of_mode = [row[1] for row in rows if row[0]["recompute"] == group.per["recompute"]]
        assert group.configurations[0].keys["peak"] == min(of_mode)
    may = {(peak, seconds) for _, peak, seconds, verdict in rows if verdict != NAMES[2]}
    front = sorted(own for own in may if not any(
        other != own and other[0] <= own[0] and other[1] <= own[1] for other in may))
    shown = answer.answers["front"].configurations  # type: ignore[union-attr]
    assert [(item.keys["peak"], item.keys["step.time"]) for item in shown] == front
    counts = np.bincount(np.searchsorted(EDGES, [row[1] for row in rows], side="right"), minlength=4)
    assert answer.answers["sizes"].counts == tuple(counts)  # type: ignore[union-attr]


def test_a_nest_is_the_same_in_another_process() -> None:
    cluster = cluster_of({"name": "both", "network": "ndr-400", "kinds": [
        {"gpu": "h100-80gb", "gpus": 8}, {"gpu": "a100-80gb", "gpus": 8}]})
    space = Space({"pipeline_parallel": [2, 4], "tensor_parallel": [2, 4]}, "llama-3.2-1b", cluster=cluster,
                  fixed={"global_batch_size": 16}, questions=(Best("best", ("step.time",), 4),))
    (part,) = space.parts()
    nest = nest_of(part, space.questions)
    other = pickle.loads(pickle.dumps(nest))
    assert other.key == nest.key
    ours, theirs = run(nest).answer, run(other).answer
    assert np.array_equal(ours.questions[0].keys, theirs.questions[0].keys)  # type: ignore[union-attr]
    assert ours.verdicts.sum() == 4
