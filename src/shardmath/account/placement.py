"""Where the nodes of a cluster go in a layout: which links its groups of ranks use, and the order that is fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

from shardmath.account.arrangements import Wanted, arranged, in_order, matrix_of
from shardmath.account.time import link_parameters
from shardmath.answers import Answer
from shardmath.compiler.evaluators import Evaluator, times_at
from shardmath.errors import InputError
from shardmath.machines import Cluster

_END = "_link_bandwidth"
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
    ranks_per_node: int
    """Ranks of a block."""
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
    nodes = range(len(links))
    rows = [[links.of_gpu(i, j, size) if i != j else 0 for j in nodes] for i in nodes]
    matrix = matrix_of(rows)
    known = link_parameters(evaluator)

    def seconds(letters: Mapping[str, int]) -> float:
        own = {f"{name}{_END}": value for name, value in letters.items()}
        return times_at(evaluator.times, {**values, **own})["step.time"]

    wanted = wanted_links(times_at(evaluator.times, values), values, [name.removesuffix(_END) for name in known])
    best = arranged(matrix, wanted, places, seconds)
    usual = in_order(matrix, wanted, range(places))
    usual_seconds = seconds(usual)
    if usual_seconds <= best.seconds:
        best = type(best)(tuple(range(places)), usual, usual_seconds, best.is_exact, best.tried)
    used = tuple(
        UsedLink(group, *_slowest(rows, wanted, best.nodes, group, links.name), bandwidth, usual[group])
        for group, bandwidth in best.letters.items()
    )
    ends = _stages(values, places)
    least = seconds({})
    answer = Placement(
        tuple(links.name(node) for node in best.nodes), size, ends, used, best.seconds, usual_seconds, least,
        best.is_exact or best.seconds <= least, best.tried,
    )
    return answer, {f"{name}{_END}": value for name, value in best.letters.items()}


def wanted_links(numbers: Mapping[str, float], values: Mapping[str, int], groups: Sequence[str]) -> Wanted:
    """Return the links between blocks of ranks that a layout uses, from sizes and strides of its ``groups``."""
    gpus, block = values["num_gpus"], values["node_size"]
    rings: dict[str, tuple[tuple[int, int], ...]] = {}
    paths: set[tuple[tuple[int, int], ...]] = set()
    for group in groups:
        if group == "path":
            continue
        size, stride = int(numbers[f"{group}.size"]), int(numbers[f"{group}.stride"])
        pairs: set[tuple[int, int]] = set()
        for start in range(gpus):
            if start // stride % size:
                continue
            blocks = [(start + place * stride) // block for place in range(size)]
            if group == "pipeline":
                chain = list(pairwise(blocks))
                crossed = tuple((a, b) for a, b in chain if a != b)
                if crossed:
                    paths.add(crossed)
                if values.get("virtual_pipeline", 1) > 1 or values.get("tied_embeddings", 0):
                    chain.append((blocks[-1], blocks[0]))
                pairs |= {pair for a, b in chain for pair in ((a, b), (b, a))}
            elif group in _ALL_TO_ALL:
                pairs |= set(permutations(blocks, 2))
            elif size > 1:
                pairs |= set(zip(blocks, [*blocks[1:], blocks[0]], strict=True))
        rings[group] = tuple(sorted((a, b) for a, b in pairs if a != b))
    return Wanted({group: pairs for group, pairs in rings.items() if pairs}, tuple(sorted(paths)))


def _slowest(
    rows: Sequence[Sequence[int]], wanted: Wanted, nodes: Sequence[int], group: str, name: Callable[[int], str],
) -> tuple[str, str]:
    """Return names of the nodes at the ends of the slowest link of a group."""
    if group == "path":
        return "", ""
    a, b = min(wanted.rings[group], key=lambda pair: rows[nodes[pair[0]]][nodes[pair[1]]])
    return name(nodes[a]), name(nodes[b])


def _stages(values: Mapping[str, int], places: int) -> tuple[tuple[int, ...], ...]:
    """Pipeline stages that have ranks in each block."""
    per_stage = values["num_gpus"] // values["pipeline_parallel"]
    gpus, block = values["num_gpus"], values["node_size"]
    return tuple(
        tuple(sorted({rank // per_stage for rank in range(start, min(gpus, start + block))}))
        for start in range(0, places * block, block)
    )
