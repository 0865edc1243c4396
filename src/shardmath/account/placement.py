"""Where the nodes of a cluster go in a layout: which links its groups of ranks use, and the order that is fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

from shardmath.account.arrangements import (
    Arrangement,
    Bandwidths,
    Judged,
    Pool,
    Wanted,
    arranged,
    in_order,
    matrix_of,
    usual_order,
)
from shardmath.account.time import link_parameters
from shardmath.answers import Answer
from shardmath.compiler.evaluators import Evaluator, times_at
from shardmath.errors import InputError
from shardmath.machines import Cluster, Links

#: End of the names of parameters that are bandwidths of measured links.
LINK = "_link_bandwidth"
#: Links between stages: the slowest one, and the mean of a pipeline.
_OF_STAGES = ("pipeline", "path")
Pair = tuple[int, int]
#: Groups whose members all send to each other; others are rings.
_ALL_TO_ALL = ("expert", "expert_all")


@dataclass(frozen=True)
class UsedLink(Answer):
    """The slowest link between nodes that a group of ranks uses."""

    group: str
    """Group of ranks, or ``path`` for the mean of the links of a pipeline."""
    sender: str
    """Node that sends; empty for a mean."""
    receiver: str
    """Node that receives; empty for a mean."""
    bytes_per_s: int
    """Bytes/s of one GPU, where all GPUs of the node send."""
    file_order: int
    """The same with the nodes in the order of the file."""


@dataclass(frozen=True)
class Placement(Answer):
    """Nodes in the order in which the ranks are numbered, and what that is worth."""

    nodes: tuple[str, ...]
    """Node of each block of ranks: the first has the first ranks."""
    ranks: tuple[tuple[int, ...], ...]
    """First and last rank of each block."""
    stages: tuple[tuple[int, ...], ...]
    """Pipeline stages of each block."""
    links: tuple[UsedLink, ...]
    """The slowest link of every group of ranks that leaves a node."""
    seconds: float
    """Seconds of a step in this order."""
    file_order_seconds: float
    """Seconds of a step with the nodes in the order of the file."""
    least_seconds: float
    """Seconds of a step if every link were the fastest: no order has fewer."""
    is_exact: bool
    """True if no order of the nodes is faster."""
    tried: int
    """Orders that were looked at."""


def placed(evaluator: Evaluator, cluster: Cluster, values: Mapping[str, int]) -> tuple[Placement, dict[str, int]]:
    """Return the fastest order of nodes for a layout, and the parameters of the machine that follow from it.

    ``values`` are those of all parameters, with the fastest link for every group. Raises InputError for a job that
    needs more nodes than have measured links, and for ranks in another order than that of data parallelism first.
    """
    links = cluster.links
    assert links is not None
    size, gpus = values["node_size"], values["num_gpus"]
    places = -(-gpus // size)
    if places > len(links):
        rule = f"must be at most {len(links) * size}: links of {len(links)} nodes with {size} GPUs are given"
        raise InputError("num_gpus", gpus, rule, str(len(links) * size))
    if values.get("pipeline_place", 0):
        raise InputError("pipeline_place", values["pipeline_place"], "must be 0 where links are measured", "0")
    node_of_rank = [rank // size for rank in range(gpus)]
    wanted = wanted_links(times_at(evaluator.times, values), values, node_of_rank, groups_of(evaluator))
    rows = links.of_gpus([size] * len(links))

    def seconds(letters: Mapping[str, float]) -> float:
        own = {f"{name}{LINK}": int(value) for name, value in letters.items()}
        return times_at(evaluator.times, {**values, **own})["step.time"]

    own_links, pools = Bandwidths(matrix_of(rows), wanted), (Pool(range(len(links)), places),)
    best, usual_seconds = fastest(own_links, pools, seconds)
    answer = placement(links, rows, wanted, node_of_rank, values, (usual_order(pools), best),
                       (usual_seconds, seconds({})))
    return answer, {f"{name}{LINK}": int(value) for name, value in best.letters.items()}


def groups_of(evaluator: Evaluator) -> list[str]:
    """Return groups of ranks whose links the time of a step depends on."""
    return [name.removesuffix(LINK) for name in link_parameters(evaluator)]


def fastest(
    links: Judged, pools: Sequence[Pool], seconds: Callable[[Mapping[str, float]], float],
) -> tuple[Arrangement, float]:
    """Return the fastest order of nodes, that of the file where none is faster; and seconds in the file's order."""
    best, order = arranged(links, pools, seconds), usual_order(pools)
    usual = in_order(links, order)
    usual_seconds = seconds(usual)
    if usual_seconds <= best.seconds:
        best = replace(best, nodes=order, letters=usual, seconds=usual_seconds)
    return best, usual_seconds


def placement(
    links: Links, rows: Sequence[Sequence[int]], wanted: Wanted, node_of_rank: Sequence[int],
    values: Mapping[str, int], orders: tuple[Sequence[int], Arrangement], times: tuple[float, float],
) -> Placement:
    """Return the answer for an order of nodes beside that of the file, with seconds in the latter and the fewest."""
    usual, best = orders
    judged, (usual_seconds, least) = Bandwidths(matrix_of(rows), wanted), times
    before, after = in_order(judged, usual), in_order(judged, best.nodes)
    used = tuple(
        UsedLink(group, *_slowest(rows, wanted, best.nodes, group, links.name), int(bandwidth), int(before[group]))
        for group, bandwidth in after.items()
    )
    of_place = [[rank for rank, node in enumerate(node_of_rank) if node == place] for place in range(len(best.nodes))]
    per_stage = values["num_gpus"] // values["pipeline_parallel"]
    return Placement(
        tuple(links.name(node) for node in best.nodes), tuple((own[0], own[-1]) for own in of_place),
        tuple(tuple(sorted({rank // per_stage for rank in own})) for own in of_place), used, best.seconds,
        usual_seconds, least, best.is_exact or best.seconds <= least, best.tried,
    )


def wanted_links(
    numbers: Mapping[str, float], values: Mapping[str, int], node_of_rank: Sequence[int], groups: Sequence[str],
) -> Wanted:
    """Return the links between places of nodes that a layout uses, from sizes and strides of its ``groups``."""
    rings = {group: rings_of(numbers, group, node_of_rank) for group in groups if group not in _OF_STAGES}
    paths: set[tuple[Pair, ...]] = set()
    if "pipeline" in groups:
        chains = chains_of(values, node_of_rank)
        paths = {tuple((a, b) for a, b in pairwise(chain) if a != b) for chain in chains}
        rings["pipeline"] = {pair for chain in chains for a, b in neighbours(chain, values) for pair in ((a, b), (b, a))
                             if a != b}
    return Wanted({group: tuple(sorted(pairs)) for group, pairs in rings.items() if pairs},
                  tuple(sorted(path for path in paths if path)) if "path" in groups else ())


def rings_of(numbers: Mapping[str, float], group: str, node_of_rank: Sequence[int]) -> set[Pair]:
    """Return the pairs of places of nodes, sender and receiver, between which ranks of a group send."""
    size, stride = int(numbers[f"{group}.size"]), int(numbers[f"{group}.stride"])
    pairs: set[Pair] = set()
    for start in range(len(node_of_rank)):
        if start // stride % size or size == 1:
            continue
        nodes = [node_of_rank[start + place * stride] for place in range(size)]
        pairs |= set(permutations(nodes, 2) if group in _ALL_TO_ALL else
                     zip(nodes, [*nodes[1:], nodes[0]], strict=True))
    return {(a, b) for a, b in pairs if a != b}


def chains_of(values: Mapping[str, int], node_of_rank: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the places of nodes that each pipeline passes, from its first stage to its last; equal ones once."""
    width = values["num_gpus"] // values["pipeline_parallel"]
    return sorted({tuple(node_of_rank[start::width]) for start in range(width)})


def neighbours(chain: Sequence[int], values: Mapping[str, int]) -> list[Pair]:
    """Return the pairs of stages' nodes that send to each other; the last and the first one where both do."""
    around = values.get("virtual_pipeline", 1) > 1 or values.get("tied_embeddings", 0)
    return [*pairwise(chain), *([(chain[-1], chain[0])] if around else [])]


def _slowest(
    rows: Sequence[Sequence[int]], wanted: Wanted, nodes: Sequence[int], group: str, name: Callable[[int], str],
) -> tuple[str, str]:
    """Return names of the nodes at the ends of the slowest link of a group."""
    if group == "path":
        return "", ""
    a, b = min(wanted.rings[group], key=lambda pair: rows[nodes[pair[0]]][nodes[pair[1]]])
    return name(nodes[a]), name(nodes[b])
