"""Measured links of several kinds of GPUs: against ranks numbered one by one, every order, and played pipelines."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest
from oracles.pipelines.mixed_pipeline import play
from oracles.pipelines.placed_kinds import Placed, Sizes, orders

from shardmath import Cluster, explain, sweep
from shardmath.account.configured import Configuration, configured_on_any
from shardmath.account.mixed import Mixed
from shardmath.compiler.evaluators import times_at
from shardmath.machines.files import cluster_of

MODEL = "llama-3.2-1b"
#: Kinds with layouts of theirs: GPUs and GPUs of a node of each kind, then TP, CP, PP and DP.
CASES: list[tuple[tuple[tuple[int, int], ...], Sizes]] = [
    (((8, 4), (8, 4)), (4, 1, 2, 2)), (((8, 4), (8, 4)), (2, 2, 2, 2)), (((8, 4), (8, 4)), (4, 1, 4, 1)),
    (((8, 4), (16, 8)), (2, 1, 3, 4)), (((8, 4), (16, 8)), (4, 1, 3, 2)), (((8, 2), (8, 8)), (2, 1, 2, 4)),
    (((12, 4), (4, 4)), (4, 1, 4, 1)), (((8, 4), (8, 4)), (1, 4, 2, 2)), (((8, 4), (16, 4)), (1, 2, 3, 4)),
]


def cluster(kinds: tuple[tuple[int, int], ...], matrix: list[list[int]], **others: Any) -> Cluster:
    gpus = ("h100-80gb", "a100-80gb")
    return cluster_of({"name": "ours", "network": "ndr-400", **others, "kinds": [
        {"gpu": gpu, "gpus": number, "gpus_per_node": size} for gpu, (number, size) in zip(gpus, kinds, strict=True)],
        **({"links": {"mb_per_s": matrix}} if matrix else {})})


def drawn(draw: Random, kinds: tuple[tuple[int, int], ...], most: int = 100) -> list[list[int]]:
    nodes = sum(-(-gpus // size) for gpus, size in kinds)
    return [[0 if i == j else draw.randint(5, most) * 1000 for j in range(nodes)] for i in range(nodes)]


def asked(sizes: Sizes, **others: Any) -> dict[str, Any]:
    t, c, p, d = sizes
    return {"tensor_parallel": t, "context_parallel": c, "pipeline_parallel": p, "global_batch_size": 8 * d, **others}


def permuted(matrix: list[list[int]], order: tuple[int, ...]) -> list[list[int]]:
    return [[matrix[i][j] for j in order] for i in order]


def stages_of(made: Configuration) -> tuple[Any, ...]:
    assert isinstance(made.hardware, Mixed)
    pipeline, placement = made.hardware.pipeline.placed()
    assert placement is not None
    return pipeline.stages


def message(made: Configuration, rank: int, speed: int | None, fastest: int) -> Fraction:
    """Return seconds of a message by the figures of a stage; inside a node it is as fast as the fastest link."""
    own = {**stages_of(made)[rank], "pipeline_link_bandwidth": fastest if speed is None else speed}
    return Fraction(times_at(made.job.evaluator.times, own)["stage.send"])


@pytest.mark.cases(4, 200)
def test_stages_have_the_links_of_ranks_numbered_one_by_one(draw: Random) -> None:
    kinds, sizes = draw.choice(CASES)
    matrix = drawn(draw, kinds)
    made = configured_on_any(MODEL, cluster(kinds, matrix), **asked(sizes))
    stages, placement = stages_of(made), made.placement
    assert placement is not None
    placed = Placed(kinds, matrix, [int(name) for name in placement.nodes], sizes)
    for rank, stage in enumerate(stages):
        for group, speed in placed.slowest_of_rings(rank).items():
            assert stage[f"{group}_link_bandwidth"] == speed, (rank, group)
    every = range(sum(gpus for gpus, _ in kinds))
    for place, (first, last) in enumerate(placement.ranks):
        own = [rank for rank in every if placed.node(rank)[0] == int(placement.nodes[place])]
        assert (own[0], own[-1], len(own)) == (first, last, last - first + 1)

    fastest = placed.fastest()
    sends = [[[max(message(made, own, speed, fastest) for own in (rank, rank + 1)) for speed in border]
              for rank, border in enumerate(pipeline)] for pipeline in placed.pipelines()]
    figures, pico = stages[0], 10**12
    slowest = max(way for pipeline in sends for border in pipeline for way in border)
    through = max(sum((sum(border) / 2 for border in pipeline), Fraction(0)) for pipeline in sends)
    assert figures["all_stages_slowest_send"] == pytest.approx(float(slowest) * pico, abs=1.5)
    assert figures["all_stages_sends"] == pytest.approx(float(through) * pico, abs=1.5)


@pytest.mark.cases(3, 100)
def test_no_order_is_faster(draw: Random) -> None:
    """Each order of the nodes of each kind as a file of its own, whose order is taken as it is."""
    kinds, sizes = draw.choice(CASES)
    matrix = drawn(draw, kinds)
    ours = explain(MODEL, cluster(kinds, matrix), **asked(sizes))
    best = ours.placement
    assert best is not None
    assert best.is_exact
    times = []
    for order in orders(kinds):
        other = explain(MODEL, cluster(kinds, permuted(matrix, order)), **asked(sizes)).placement
        assert other is not None
        times.append(other.file_order_seconds)
        assert other.seconds == pytest.approx(best.seconds, rel=1e-9)
    assert min(times) == pytest.approx(best.seconds, rel=1e-9)
    assert best.least_seconds <= best.seconds <= best.file_order_seconds <= max(times)
    assert ours.time is not None
    assert ours.time.seconds == best.seconds


@pytest.mark.cases(3, 100)
def test_a_played_pipeline_never_takes_longer(draw: Random) -> None:
    """Each pipeline is played with the messages of its own borders; passes back take twice as long as forward ones."""
    kinds, sizes = draw.choice([case for case in CASES if case[1][2] > 2])
    matrix = drawn(draw, kinds, 20)
    made = configured_on_any(MODEL, cluster(kinds, matrix), **asked(sizes))
    stages, placement, times = stages_of(made), made.placement, made.job.evaluator.times
    assert placement is not None
    placed = Placed(kinds, matrix, [int(name) for name in placement.nodes], sizes)
    fastest = placed.fastest()
    numbers = [times_at(times, stage) for stage in stages]
    forward = [Fraction(own["stage.microbatch_time"]) / 3 for own in numbers]
    formula = numbers[0]["step.time"] - numbers[0]["step.data_waiting"] - numbers[0]["step.optimizer"]
    longest, through = Fraction(0), Fraction(0)
    for pipeline in placed.pipelines():
        sends = [max(message(made, own, speed, fastest) for own in (rank, rank + 1) for speed in border)
                 for rank, border in enumerate(pipeline)]
        longest = max(longest, play(forward, [2 * own for own in forward], 8, sends))
        through = max(through, sum(sends, Fraction(0)))
    # Played messages take the slower way over a border in both directions; the formula has the mean of both.
    slower_ways = 2 * (float(through) - stages[0]["all_stages_sends"] / 10**12)
    assert float(longest) <= (formula + slower_ways) * (1 + 1e-9)


@pytest.mark.parametrize("place", range(len(CASES)))
def test_equal_links_are_a_network(place: int) -> None:
    """As fast as a network with the bandwidth of each link, whose collectives reach all of it."""
    kinds, sizes = CASES[place]
    if len({size for _, size in kinds}) > 1:
        kinds = tuple((gpus, 4) for gpus, _ in kinds)
    usual = cluster(kinds, [], parameters={"network_per_mille": 1000})
    megabytes = usual.kinds[0].cluster.values()["network_bandwidth"] * 4 // 10**6
    nodes = sum(usual.nodes_of_kinds)
    equal = [[0 if i == j else megabytes for j in range(nodes)] for i in range(nodes)]
    measured, uniform = (explain(MODEL, own, **asked(sizes)) for own in (cluster(kinds, equal), usual))
    assert measured.time is not None
    assert uniform.time is not None
    assert measured.time.seconds == pytest.approx(uniform.time.seconds, rel=1e-9)
    assert measured.layers == uniform.layers
    assert measured.peak_bytes == uniform.peak_bytes
    assert uniform.placement is None


@pytest.mark.cases(2, 60)
def test_two_kinds_that_are_one(draw: Random) -> None:
    """In the order of the file as long as one kind with the same links, where only messages leave a node.

    Where gradients do, one kind has the slowest link of all stages for each of them, and takes as long or longer.
    """
    sizes = draw.choice([(4, 1, 2, 2), (2, 1, 2, 4), (4, 1, 4, 1)])
    matrix = drawn(draw, ((8, 4), (8, 4)), 40)
    table = {"gpu": "a100-80gb", "gpus": 8, "gpus_per_node": 4}
    both = cluster_of({"name": "both", "network": "ndr-400", "links": {"mb_per_s": matrix}, "kinds": [table, table]})
    one = cluster_of({"name": "one", "network": "ndr-400", "links": {"mb_per_s": matrix}, "gpu": "a100-80gb",
                      "gpus_per_node": 4})
    for hidden in (0, 1):
        options = {"pipeline_layout": [32 // sizes[2]] * sizes[2], "overlap_grad_reduce": hidden,
                   "overlap_param_gather": hidden, **asked(sizes)}
        ours = explain("llama-3.1-8b", both, **options).placement
        theirs = explain("llama-3.1-8b", one, num_gpus=16, **options).placement
        assert ours is not None
        assert theirs is not None
        if sizes[3] == 1:
            assert theirs.seconds <= ours.seconds * (1 + 1e-9)
            assert ours.file_order_seconds == pytest.approx(theirs.file_order_seconds, rel=1e-9)
        else:
            least = 0.99 * theirs.file_order_seconds * (1 - hidden)  # beside work each stage has its own share to hide
            assert least < ours.file_order_seconds <= theirs.file_order_seconds * (1 + 1e-9)


def test_a_sweep_places_what_it_shows() -> None:
    machine = cluster(((8, 4), (8, 4)), drawn(Random(5), ((8, 4), (8, 4))))
    found = sweep(MODEL, machine, 16, global_batch_size=16, micro_batch_size=[1], recompute=["none"], top=4)
    assert [item.placed_seconds for item in found.best] == sorted(item.placed_seconds or 0 for item in found.best)
    for item in found.best:
        own = explain(MODEL, machine, tensor_parallel=item.tensor_parallel, context_parallel=item.context_parallel,
                      pipeline_parallel=item.pipeline_parallel, sequence_parallel=bool(item.sequence_parallel),
                      global_batch_size=16)
        assert own.time is not None
        assert own.time.seconds == pytest.approx(item.placed_seconds, rel=1e-12)
        assert item.step_seconds is not None
        assert item.step_seconds <= own.time.seconds * (1 + 1e-12)
        assert ",".join(map(str, own.layers or ())) == item.pipeline_layout
