"""Nodes placed by measured links: against ranks numbered one by one, every order tried, and a uniform network."""

from __future__ import annotations

import json
from itertools import pairwise, permutations, product
from pathlib import Path
from random import Random

import numpy as np
import pytest

from shardmath import Cluster, explain, read_cluster, sweep
from shardmath.account.accounting import Explanation
from shardmath.account.arrangements import Bandwidths, Pool, Wanted, _annealed, arranged
from shardmath.cli.main import exit_code
from shardmath.commands.sweep.answer import SweepResult
from shardmath.errors import InputError
from shardmath.machines import Links

pytestmark = pytest.mark.slow

TENTH = 10**5
Sizes = tuple[int, int, int, int]
#: Layouts of 16 GPUs in nodes of 4: TP, CP, PP, DP.
LAYOUTS = [(4, 1, 1, 4), (4, 1, 4, 1), (2, 1, 2, 4), (1, 2, 4, 2), (4, 2, 2, 1), (2, 2, 1, 4)]


def cluster(matrix: list[list[int]], gpus_per_node: int = 4) -> Cluster:
    usual = Cluster.named("a100-80gb", "hdr-200")
    return usual.model_copy(update={"gpus_per_node": gpus_per_node, "links": Links(mb_per_s=matrix)})


def drawn(draw: Random, nodes: int) -> list[list[int]]:
    return [[0 if i == j else draw.randint(5, 100) * 1000 for j in range(nodes)] for i in range(nodes)]


def explained(machine: Cluster, sizes: tuple[int, int, int, int], **others: object) -> Explanation:
    t, c, p, data = sizes
    return explain("llama-3.2-1b", machine, tensor_parallel=t, context_parallel=c, pipeline_parallel=p,
                   data_parallel=data, global_batch_size=8 * data, **others)  # type: ignore[arg-type]


def slowest_links(matrix: list[list[int]], order: tuple[int, ...], sizes: Sizes) -> dict[str, float]:
    """Megatron-LM's ranks, one by one: TP varies first, then CP, DP and PP; rings and chains of neighbours."""
    t, c, p, data = sizes
    rank = {key: number for number, key in enumerate(product(range(p), range(data), range(c), range(t)))}

    def link(one: int, other: int) -> float | None:
        a, b = order[one // 4], order[other // 4]
        return None if a == b else matrix[a][b] * 10**6 // 4

    slow: dict[str, float] = {}

    def ring(group: str, ranks: list[int]) -> None:
        speeds = [link(a, b) for a, b in zip(ranks, ranks[1:] + ranks[:1], strict=True)]
        for speed in speeds:
            if speed is not None:
                slow[group] = min(slow.get(group, speed), speed)

    for i, j, k in product(range(p), range(data), range(c)):
        ring("tensor", [rank[i, j, k, x] for x in range(t)])
    for i, j, x in product(range(p), range(data), range(t)):
        ring("context", [rank[i, j, k, x] for k in range(c)])
    for i, x in product(range(p), range(t)):
        ring("data", [rank[i, j, k, x] for j in range(data) for k in range(c)])
    for j, k, x in product(range(data), range(c), range(t)):
        stages = [rank[i, j, k, x] for i in range(p)]
        both = [speed for a, b in pairwise(stages) for speed in (link(a, b), link(b, a)) if speed]
        if p > 1:
            wrap = [speed for speed in (link(stages[0], stages[-1]), link(stages[-1], stages[0])) if speed]
            for speed in (*both, *wrap):  # Llama 3.2 1B ties its embeddings
                slow["pipeline"] = min(slow.get("pipeline", speed), speed)
        if both:
            mean = len(both) / sum(1 / speed for speed in both)
            slow["path"] = min(slow.get("path", mean), mean)
    return slow


@pytest.mark.parametrize("sizes", LAYOUTS)
def test_links_are_those_of_ranks_numbered_one_by_one(sizes: tuple[int, int, int, int]) -> None:
    matrix = drawn(Random(str(sizes)), 4)
    answer = explained(cluster(matrix), sizes).placement
    assert answer is not None
    order = tuple(int(name) for name in answer.nodes)
    expected = slowest_links(matrix, order, sizes)
    assert {link.group: link.bytes_per_s for link in answer.links} == {
        group: int(speed) for group, speed in expected.items()}
    for link in answer.links:
        if link.sender:
            assert matrix[int(link.sender)][int(link.receiver)] * 10**6 // 4 == link.bytes_per_s


@pytest.mark.parametrize("sizes", LAYOUTS)
def test_no_order_is_faster(sizes: tuple[int, int, int, int]) -> None:
    """Each of the 24 orders as a file of its own, whose order is taken as it is."""
    matrix = drawn(Random(str(sizes)), 4)
    best = explained(cluster(matrix), sizes).placement
    assert best is not None
    assert best.is_exact
    times = []
    for order in permutations(range(4)):
        other = explained(cluster([[matrix[i][j] for j in order] for i in order]), sizes).placement
        assert other is not None
        times.append(other.file_order_seconds)
        assert other.seconds == pytest.approx(best.seconds, rel=1e-12)
    assert min(times) == pytest.approx(best.seconds, rel=1e-12)
    assert best.least_seconds <= best.seconds <= best.file_order_seconds <= max(times)


@pytest.mark.parametrize("sizes", LAYOUTS)
def test_equal_links_are_a_network(sizes: tuple[int, int, int, int]) -> None:
    """As fast as a network with the bandwidth of each link, whose collectives reach all of it."""
    usual = Cluster.named("a100-80gb", "hdr-200").model_copy(update={"gpus_per_node": 4})
    megabytes = usual.values()["network_bandwidth"] * 4 // 10**6
    equal = [[0 if i == j else megabytes for j in range(4)] for i in range(4)]
    measured = explained(cluster(equal), sizes)
    uniform = explained(usual, sizes, network_per_mille=1000)
    assert measured.time is not None
    assert uniform.time is not None
    assert measured.time.seconds == pytest.approx(uniform.time.seconds, rel=1e-12)
    assert measured.peak_bytes == uniform.peak_bytes
    assert uniform.placement is None


def test_the_fastest_nodes_of_many_are_chosen() -> None:
    matrix = [[0 if i == j else 90_000 if {i, j} == {3, 5} else 10_000 for j in range(6)] for i in range(6)]
    answer = explained(cluster(matrix), (4, 1, 1, 2)).placement
    assert answer is not None
    assert sorted(answer.nodes) == ["3", "5"]


@pytest.mark.parametrize("seed", range(6))
def test_annealing_finds_what_trying_all_orders_finds(seed: int) -> None:
    """Stages of two nodes each: rings of two, and two pipelines, for a step that waits for both."""
    draw = Random(seed)
    matrix = np.array(drawn(draw, 6)) * TENTH
    rings = {"data": ((0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)), "pipeline": ((0, 2), (2, 4), (1, 3), (3, 5))}
    wanted = Wanted(rings, (((0, 2), (2, 4)), ((1, 3), (3, 5))))

    def seconds(letters: object) -> float:
        known = {"data": 1e10, "pipeline": 1e10, "path": 1e10, **letters}  # type: ignore[dict-item]
        return 1 + 1e9 / known["data"] + 1e8 / known["pipeline"] + 3e8 / known["path"]

    links, pools = Bandwidths(matrix, wanted), [Pool(range(6), 6)]
    exact = arranged(links, pools, seconds)
    assert exact.is_exact

    def timed(row: object) -> float:
        return seconds(dict(zip(links.names, map(int, row), strict=True)))  # type: ignore[call-overload]

    order = _annealed(pools, links, timed)
    assert sorted(order.tolist()) == list(range(6))
    assert timed(links.of(order[None])[0]) <= 1.002 * exact.seconds


def test_large_clusters_are_placed_alike_each_time() -> None:
    machine = cluster(drawn(Random(3), 16))
    first, second = (explained(machine, (4, 1, 4, 4)).placement for _ in range(2))
    assert first == second
    assert first is not None
    assert not first.is_exact
    assert first.least_seconds <= first.seconds < first.file_order_seconds


@pytest.mark.parametrize(("text", "line"), [
    ("mb_per_s = [[0, 1], [1]]", "links.mb_per_s[1] = '1 numbers': must have 2 numbers: the matrix has 2 rows and must"
     " be square; nearest legal: 2"),
    ("mb_per_s = [[0, 0], [1, 0]]", "links.mb_per_s[0][1] = 0: must be a number of 10^6 bytes/s from 1 to 1000000000;"
     " nearest legal: 1"),
    ("mb_per_s = [[0, -5.5], [1, 0]]", "links.mb_per_s[0][1] = -5.5: must be a number of 10^6 bytes/s from 1 to"
     " 1000000000; nearest legal: 1"),
    ("mb_per_s = [[0, nan], [1, 0]]", "links.mb_per_s[0][1] = nan: must be a number"),
    ("mb_per_s = [[0, true], [1, 0]]", "links.mb_per_s[0][1] = True: must be a number"),
    ("mb_per_s = [[5, 1], [1, 0]]", "links.mb_per_s[1][1] = 0: must be given for each node, or be 0 for all"),
    ("mb_per_s = [[0]]", "links.mb_per_s = '1 rows': must have 2 to 1024 rows"),
    ("mb_per_s = 7", "links.mb_per_s = 7: must be a list of lists of numbers"),
    ('mb_per_s = [[0, 1], [1, 0]]\nnodes = ["a"]', "links.nodes = '1 names': must have 2 names"),
    ("mbps = [[0, 1], [1, 0]]", "links.mbps = [[0, 1], [1, 0]]: must not be given: there is no such key; nearest legal:"
     " mb_per_s"),
    ('file = "absent.csv"', "links.file = "),
    ('file = "words.csv"', "links.mb_per_s[0][1] = 'x': must be a number of 10^6 bytes/s"),
])
def test_matrices_that_are_refused(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("a,b\n0,x\n1,0\n")
    path = tmp_path / "c.toml"
    path.write_text(f'gpu = "a100-80gb"\nnetwork = "hdr-200"\n[links]\n{text}\n')
    with pytest.raises(InputError) as caught:
        read_cluster(path)
    assert line in str(caught.value)
    assert exit_code(["explain", "llama-3.2-1b", "--gpu", str(path)]) == 2


def test_more_nodes_than_links_are_refused() -> None:
    with pytest.raises(InputError, match=r"num_gpus = 32: must be at most 16: links of 4 nodes .*; nearest legal: 16"):
        explained(cluster(drawn(Random(1), 4)), (4, 1, 1, 8))
    with pytest.raises(InputError, match="must not be given without measured links in a cluster file"):
        explain("llama-3.2-1b", "a100-80gb", kernels={"links": "measured"})


def test_a_matrix_in_a_file_of_its_own(tmp_path: Path) -> None:
    matrix = {"nodes": ["x", "y"], "mb_per_s": [[300_000, 8000.5], [7000, 290_000]]}
    (tmp_path / "m.json").write_text(json.dumps(matrix))
    path = tmp_path / "c.toml"
    path.write_text('gpu = "a100-80gb"\nnetwork = "hdr-200"\n[links]\nfile = "m.json"\n')
    machine = read_cluster(path)
    assert machine.links is not None
    assert machine.links.nodes == ("x", "y")
    values = machine.values()
    assert values["node_bandwidth"] == 290_000 * 10**6
    assert values["network_bandwidth"] == 8_000_500_000 // 8
    assert values["node_per_mille"] == values["network_per_mille"] == 1000


def test_a_sweep_places_the_layouts_that_it_shows() -> None:
    """Times are those of ``explain``, and a first layout that is said to be the fastest is so among all that fit."""
    machine = cluster(drawn(Random(11), 4))

    def swept(top: int) -> SweepResult:
        return sweep("llama-3.2-1b", machine, 16, global_batch_size=32, micro_batch_size=[1], context_parallel=[1],
                     recompute=["none"], sequence_parallel=[0], top=top)

    few, every = swept(3), swept(1000)
    assert len(every.best) == every.verdicts["fits"]
    for item in few.best:
        account = explain("llama-3.2-1b", machine, num_gpus=16, tensor_parallel=item.tensor_parallel,
                          pipeline_parallel=item.pipeline_parallel, virtual_pipeline=item.virtual_pipeline,
                          global_batch_size=32, sequence_parallel=item.sequence_parallel, schedule=item.schedule,
                          account_for_embedding=item.account_for_embedding, account_for_loss=item.account_for_loss,
                          first_stage_layers=item.first_stage_layers, last_stage_layers=item.last_stage_layers)
        assert account.time is not None
        assert item.placed_seconds == pytest.approx(account.time.seconds, rel=1e-12)
    for item in every.best:
        assert item.placed_seconds is not None
        assert item.step_seconds is not None
        assert item.step_seconds <= item.placed_seconds * (1 + 1e-12)
    assert every.are_fastest
    assert few.are_fastest
    assert few.best == every.best[:3]


SPACE = """model = "llama-3.2-1b"
cluster = "{cluster}"
[axes]
tensor_parallel = [1, 2]
[fixed]
num_gpus = 16
global_batch_size = 32
[questions.fastest]
best = ["step.time"]
"""


def test_searches_say_which_times_are_not_those_of_placed_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """Measured links are said; the same job on a network of equal links says nothing of them."""
    measured = Path(__file__).resolve().parents[2] / "docs" / "clusters" / "measured.toml"
    equal = tmp_path / "equal.toml"
    equal.write_text('gpu = "a100-80gb"\nnetwork = "hdr-200"\ngpus_per_node = 8\n')
    for cluster_file, says in ((measured, True), (equal, False)):
        space = tmp_path / "space.toml"
        space.write_text(SPACE.format(cluster=cluster_file))
        for command, words in (
            (["explore", str(space)], "nodes are not placed"),
            (["recommend", "llama-3.2-1b", "--gpu", str(cluster_file), "--num-gpus", "16", "--tp", "1,2", "--pp", "1",
              "--cp", "1", "--recompute", "none", "--global-batch-size", "32"], "chosen with each link as fast as"),
        ):
            assert exit_code(command) == 0
            assert (words in " ".join(capsys.readouterr().out.split())) is says
