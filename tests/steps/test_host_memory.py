"""The memory of hosts in searches: what they call legal is what ``explain`` finds room for, layout by layout."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

import shardmath
from shardmath.account.host import hosts_hold
from shardmath.configuration.settings import OFFLOADED, ON_HOST
from shardmath.errors import InputError
from shardmath.machines import Cluster
from shardmath.machines.files import cluster_of
from shardmath.search.spaces import Best, Part, Space
from shardmath.search.spaces.conditions import HOST
from shardmath.search.spaces.rows import legal_rows

pytestmark = pytest.mark.slow
MODEL, GPU = "llama-3.2-1b", "h100-80gb"
JOB = {"num_gpus": 16, "global_batch_size": 64}


def servers(gibibytes: int | None, gpus: int = 8, like: str = GPU) -> Cluster:
    own = {} if gibibytes is None else {"host_memory_gib": gibibytes}
    return cluster_of({"name": "small", "gpus_per_node": gpus, "network": "ndr-400", "gpu": {"like": like, **own}})


def small_space(cluster: Cluster, percents: list[int], **others: Any) -> Space:
    """Layouts whose stages lie on parts of a server, on one, and on several."""
    return Space(
        {"optimizer_offload_percent": percents, "tensor_parallel": [1, 2, 4], "pipeline_parallel": [1, 2, 4, 8, 16],
         "num_gpus": [4, 8, 12, 16, 24]},
        MODEL, cluster=cluster, fixed={"global_batch_size": 96, "recompute": "none", **others},
        kernels={"optimizer_offload": "cpu"}, questions=(Best("least", (OFFLOADED,), 1, among="legal"),))


def explained(part: Part, number: int, cluster: Cluster, model: str = MODEL) -> bool:
    """Whether ``explain`` takes a configuration; fails where it refuses it for anything but the host."""
    sizes = part.labels_at(number)
    try:
        shardmath.explain(model, cluster, global_batch_size=96, kernels={"optimizer_offload": "cpu"}, **sizes)
    except InputError as error:
        if "of its host" not in error.rule or error.nearest is None:
            raise
        return False
    return True


@pytest.mark.parametrize(("gpus", "gibibytes"), [(3, 5), (8, 8)])
def test_searches_and_explain_agree_layout_by_layout(gpus: int, gibibytes: int) -> None:
    """Servers of 3 GPUs are cut by stages of any width."""
    cluster = servers(gibibytes, gpus)
    (part,) = small_space(cluster, [40, 100]).parts()
    without = Part(**{**part.__dict__, "constraints": tuple(item for item in part.constraints if item.name != HOST)})
    every, kept = legal_rows(without), {*legal_rows(part).numbers.tolist()}
    assert 10 < len(kept) < len(every) - 10
    assert {number for number in every.numbers.tolist() if explained(part, number, cluster)} == kept
    nest = shardmath.explore(small_space(cluster, [40, 100]))
    assert nest.legal == len(kept)
    assert {item.name: item.count for item in nest.broken}[HOST] == len(every) - len(kept)


def stages(part: Part, number: int) -> Iterator[dict[str, Any]]:
    """The terms of every pipeline rank of a configuration."""
    from shardmath.compiler.evaluators import terms_at
    from shardmath.search.nests.configurations import Configuration

    values = Configuration(part, number, {}).values
    for rank in range(values["pipeline_parallel"]):
        yield terms_at(part.evaluator.terms, {**values, "pipeline_rank": rank})


def test_servers_with_stages_of_several_kinds() -> None:
    """DeepSeek-V3 has three dense layers: some stages have dense layers alone, one both kinds, the others experts."""
    space = Space(
        {"pipeline_parallel": [1, 2, 3, 6, 12, 61], "data_parallel": [1, 2, 4], "first_stage_layers": [0, 1, 2],
         "last_stage_layers": [0, 1]},
        "deepseek-v3", cluster=servers(1000, 5), fixed={"global_batch_size": 96, "virtual_pipeline": 1},
        kernels={"optimizer_offload": "cpu", "peak": "saved"},
        derived={"num_gpus": "pipeline_parallel * data_parallel", "optimizer_offload_percent": "100"})
    kinds = set()
    for part in space.parts():
        for number in legal_rows(part).numbers.tolist():
            ranks = list(stages(part, number))
            values = {**part.fixed, **ranks[0], "num_gpus": len(ranks) * part.labels_at(number)["data_parallel"]}
            offloaded = Fraction(ranks[0][OFFLOADED])
            assert hosts_hold({**values, "host_memory": int(offloaded)}, ranks), part.labels_at(number)
            assert not hosts_hold({**values, "host_memory": int(offloaded) - 1}, ranks), part.labels_at(number)
            kinds.add(len({rank[ON_HOST] for rank in ranks}))
    assert max(kinds) > 3


def test_nothing_on_the_host_costs_nothing() -> None:
    (part,) = Space({"tensor_parallel": [1, 2]}, MODEL, cluster=servers(1), fixed={"global_batch_size": 8,
                                                                                  "num_gpus": 8}).parts()
    assert OFFLOADED not in part.evaluator.terms.TERMS
    assert HOST not in {item.name for item in part.constraints} | part.fixed.keys()


def test_hosts_of_unknown_memory_hold_everything() -> None:
    """Hosts that are alike but for their memory, as an axis of GPUs."""
    kinds = ("a100-pcie-80gb", GPU)
    space = Space({"gpu": kinds, "tensor_parallel": [1, 2]}, MODEL, kernels={"optimizer_offload": "cpu"},
                  fixed={"global_batch_size": 8, "num_gpus": 8, "optimizer_offload_percent": 100})
    (part,) = space.parts()
    assert part.constraints[-1].text == f"{HOST} == 0 or {OFFLOADED} <= {HOST}"
    assert len(legal_rows(part)) == 4
    axis = next(axis for axis in part.axes if axis.name == "gpu")
    assert axis.values[HOST] == (0, 2 * 2**40)


def test_boxes_respect_hosts() -> None:
    space = small_space(servers(8), [40, 100])
    best = Best("best", ("peak", "tensor_parallel"), 3, among="legal")
    swept, boxed = (shardmath.explore(Space(**{**space.__dict__, "questions": (best,)}), method=method)
                    for method in ("sweep", "bounds"))
    first, second = ([item.keys for group in answer.answers["best"].groups for item in group.configurations]
                     for answer in (swept, boxed))
    assert first == second


def test_every_search_names_the_nearest_value() -> None:
    """A host that holds half of what all states need."""
    small, whole = servers(8), {**JOB, "num_gpus": 8, "recompute": ("none",), "optimizer_offload_percent": 100}
    message = ("optimizer_offload_percent = 100: must keep what the GPUs of a server offload, 18 GiB, within the 8 GiB"
               " of its host; nearest legal: 43")
    swept = shardmath.sweep(MODEL, small, **whole)
    assert swept.legal == 0
    assert {rule.name: rule.count for rule in swept.broken}[HOST] > 100
    assert swept.refusal == message
    assert message in " ".join(str(swept).split())
    with pytest.raises(InputError) as refused:
        shardmath.recommend(MODEL, small, **whole)
    assert str(refused.value) == message
    points = shardmath.scale(MODEL, small, [8, 32], global_batch_size=64, recompute=("none",),
                             optimizer_offload_percent=100).points
    assert [point.refusal for point in points] == [message, ""]
    assert shardmath.sweep(MODEL, small, **{**whole, "optimizer_offload_percent": 43}).legal > 0
    assert shardmath.sweep(MODEL, small, **{**whole, "optimizer_offload_percent": 44}).legal == 0


def test_what_a_search_shows_is_what_explain_counts() -> None:
    small = servers(16)
    swept = shardmath.sweep(MODEL, small, **JOB, recompute=("none",), optimizer_offload_percent=70)
    for layout in swept.best:
        account = shardmath.explain(
            MODEL, small, **JOB, optimizer_offload_percent=70, tensor_parallel=layout.tensor_parallel,
            context_parallel=layout.context_parallel, pipeline_parallel=layout.pipeline_parallel,
            micro_batch_size=layout.micro_batch_size, sequence_parallel=bool(layout.sequence_parallel),
            virtual_pipeline=layout.virtual_pipeline, account_for_embedding=layout.account_for_embedding,
            account_for_loss=layout.account_for_loss, last_stage_layers=layout.last_stage_layers)
        assert account.host_bytes == layout.host_bytes <= 16 * 2**30
        assert account.peak_bytes == layout.peak_bytes
    advice = shardmath.recommend(MODEL, small, **JOB, recompute=("none",), optimizer_offload_percent=70)
    assert [choice.host_bytes for choice in advice.choices] == [
        choice.explanation.host_bytes for choice in advice.choices]
    assert "on host" in str(advice)


def test_fit_and_moves_respect_hosts() -> None:
    small, job = servers(10), {**JOB, "optimizer_offload_percent": 60}
    answer = shardmath.fit(MODEL, small, "num_layers", **job)["num_layers"]
    assert answer.by_host
    assert answer.at is not None
    assert answer.beyond is not None
    for value, fits in ((answer.at.value, True), (answer.beyond.value, False)):
        shape = shardmath.load_model(MODEL).model_copy(update={"num_layers": value})
        assert explains(shape, small, job) is fits
    tight = servers(7)
    found = shardmath.moves(MODEL, tight, **{**job, "num_gpus": 16, "optimizer_offload_percent": 70})
    for move in found.differences:
        assert explains(MODEL, tight, {**job, "optimizer_offload_percent": 70, **as_run(move)}), move.changes


def explains(model: Any, cluster: Cluster, arguments: dict[str, Any]) -> bool:
    try:
        shardmath.explain(model, cluster, **arguments)
    except InputError as error:
        if "of its host" not in error.rule:
            raise
        return False
    return True


def as_run(move: Any) -> dict[str, Any]:
    sizes = {change.name: change.after for change in move.changes if isinstance(change.after, int)}
    return sizes if "data_parallel" not in sizes else {"num_gpus": sizes["data_parallel"]}
