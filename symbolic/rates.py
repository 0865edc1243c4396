"""Seconds that a machine needs: what a ring of ranks carries, what memory moves, and what a link to the host.

Ranks are numbered as Megatron-LM does: tensor parallelism first, then context, expert and data parallelism, the
pipeline last, unless it is placed elsewhere. Neighbours of a group are ``stride`` ranks apart. Where a group does not
lie inside one domain, as many rings leave the domain at once as it has groups; together they have all of its network
adapters. A pass over a ring takes a step for every rank but one, some of them between domains.

Without a switch the links of a GPU are divided among the others of its board: a collective of n of g ranks uses n - 1
of g - 1 parts, a message one. A message to another node also has a rate of its own: it neither adds up several adapters
nor fills one.

Flows of many nodes meet in the switches of a network that routes them without looking at its load. Two nodes have a
path to themselves; the more nodes a job has, the likelier a flow shares its slowest link with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sympy import Eq, Expr, Ge, Gt, Integer, Le

from .expert_layers import FLEX
from .functions import CeilDiv, Iverson, Max, Min
from .parallel.dimensions import SHAPE_RULES
from .parallel.dimensions.context import RULE as CONTEXT
from .parallel.mesh import TENSOR_RANKS, before
from .parallel.rules import BY_PLACE, GroupOfRanks, ParallelRule
from .parameters import symbols
from .terms import TermSet, product, term_symbol, total

c, p, D, R, e, et, De, N, order = symbols("c p D R e et De N ord")
s, b, ts, xr, ng, gq = symbols("s b ts xr ng gq")
Wn, Wx, Ws, dom, peers, an, ax, ab, en, ex, Wm, ew, slowed = symbols("Wn Wx Ws dom lp an ax ab en ex Wm ew sl")
Wh, Wc, hl, hm, kx, ed = symbols("Wh Wc hl hm kx ed")
_NANO = Integer(10) ** 9
#: Bytes/s of all links of a GPU inside its domain, each direction.
_LINKS_OF_GPU = Wn * en / 1000
#: Share of its rate between nodes that a flow keeps beside others of the job: all of it with two nodes or one.
UNSHARED = 1000 / (1000 + kx * (1 - Min(Integer(1), 2 * dom / N)))
#: Name of the mean of all links between the stages of a pipeline, beside the groups.
PATH = "path"


#: Ranks of the pipeline that are counted before those of context and of data parallelism.
_BEFORE_CONTEXT = 1 + Iverson(Eq(order, 2)) * (p - 1)
_BEFORE_DATA = 1 + Iverson(Ge(order, 1)) * (p - 1)

_EXPERTS = {"layers": ("experts",)}


def _placed(rule: ParallelRule, group: GroupOfRanks) -> GroupOfRanks:
    """Return a group of a dimension with the options of that, and the stride of its place."""
    stride = before(rule) * (_BEFORE_CONTEXT if rule is CONTEXT else 1)
    return replace(group, stride=stride if group.stride is BY_PLACE else group.stride, options=rule.options)


#: Groups that components exchange something between, in the order of their dimensions.
BETWEEN: tuple[GroupOfRanks, ...] = tuple(_placed(rule, group) for rule in SHAPE_RULES for group in rule.groups)

GROUPS_OF_RANKS: tuple[GroupOfRanks, ...] = tuple(sorted((
    *BETWEEN,
    GroupOfRanks("data", D * c / R, "ranks that hold the same parameters, or share them out", 30,
                 TENSOR_RANKS * _BEFORE_CONTEXT),
    GroupOfRanks("replica", R, "ranks that hold the same share of parameters", 32,
                 TENSOR_RANKS * D * c * _BEFORE_DATA / R),
    GroupOfRanks("expert_data", De / R, "ranks that hold the same experts, or share them out", 60, e * et, _EXPERTS),
    GroupOfRanks("expert_replica", R, "ranks that hold the same share of experts", 62, e * et * De / R, _EXPERTS),
    GroupOfRanks("pipeline", p, "pipeline stages", 70,
                 TENSOR_RANKS * (1 + Iverson(Le(order, 1)) * (c - 1)) * (1 + Iverson(Eq(order, 0)) * (D - 1)),
                 sends=True),
), key=lambda group: group.order))

GROUP_BY_NAME: dict[str, GroupOfRanks] = {group.name: group for group in GROUPS_OF_RANKS}


def add_groups(
    terms: TermSet, choices: Mapping[str, str], absent: Mapping[Expr, Expr], links: Mapping[str, Expr],
) -> None:
    """Add each group's ring bandwidth and latency per step; ``absent`` are values of absent letters.

    ``links`` has, by group, the bandwidth between nodes (bytes/s of one GPU) where it is not the network's. Which nodes
    these groups join follows from their sizes and strides, which are then terms too; that of stages always is.
    """
    terms.add("network.unshared", UNSHARED, "share", "share of its rate between nodes that a flow keeps beside others")
    for group in GROUPS_OF_RANKS:
        if not group.chosen(choices):
            continue
        stride = group.stride.xreplace(absent)
        if group.name in links:
            terms.add(f"{group.name}.size", group.size, "ranks", f"{group.meaning} of one group")
        if group.name in links or group.name == "pipeline":
            named = terms.add(f"{group.name}.stride", stride, "ranks", f"distance of neighbours among {group.meaning}")
            stride = named if group.name == "pipeline" else stride
        span = product(group.size, stride)
        inside = Iverson(Le(span, dom))
        rings = Min(stride, dom)
        network = _between(stride, links.get(group.name, Wx))
        others = Max(Integer(1), Min(group.size, dom / rings) - 1)
        node = _LINKS_OF_GPU * Min(Integer(1), others / peers)
        terms.add(f"{group.name}.bandwidth",
                  total(product(inside, node), product(1 - inside, Min(node, network))),
                  "bytes/s", f"bandwidth of a ring of {group.meaning}, of each rank in one direction")
        if group.sends:
            terms.add(f"{group.name}.send_bandwidth",
                      total(product(inside, _LINKS_OF_GPU / peers), product(1 - inside, _of_messages(network))),
                      "bytes/s", f"bandwidth of messages among {group.meaning}, of each rank in one direction")
        if group.has_pairs(choices):
            terms.add(f"{group.name}.pair_bandwidth", _of_pairs(group, rings, node, links, choices), "bytes/s",
                      f"bandwidth of each rank to all others among {group.meaning}, where they get parts of their own")
        if group.name == "pipeline" and PATH in links:
            terms.add("pipeline.path_bandwidth", _of_messages(_between(stride, links[PATH])), "bytes/s",
                      f"bandwidth of messages among {group.meaning} over the mean link of a pipeline")
        borders = product(1 - inside, total(Min(group.size, CeilDiv(span, dom)), Integer(-1)))
        crossed = terms.add(f"{group.name}.borders", borders, "steps",
                            f"steps of a ring of {group.meaning} that cross from one domain to the next")
        steps = total(group.size, Integer(-1))
        terms.add(f"{group.name}.latency",
                  total(product(crossed, ax - an), product(steps, an), product(Iverson(Gt(group.size, 1)), ab)) / _NANO,
                  "s", f"latency of one pass over a ring of {group.meaning}")


def _between(stride: Expr, link: Expr) -> Expr:
    """Bytes/s of each rank of a group between domains, where neighbours are ``stride`` ranks apart."""
    return product(link * ex * dom / (1000 * Min(stride, dom)), term_symbol("network.unshared"))


def _of_messages(network: Expr) -> Expr:
    """Bytes/s of messages between domains, of each rank, with its share of the network."""
    return Min(_LINKS_OF_GPU / peers, network, product(Ws, term_symbol("network.unshared")))


def _of_pairs(
    group: GroupOfRanks, rings: Expr, node: Expr, links: Mapping[str, Expr], choices: Mapping[str, str],
) -> Expr:
    """Bytes/s at which a rank sends each other one a part of its own: most go to other domains, over its own adapter.

    Those inside its domain go at the same time. DeepEP and HybridEP send a token once to each other domain, where it
    goes on to all of its ranks; elsewhere it goes to each of them by itself. A token that may use ``gq`` of ``ng``
    groups of experts goes to their domains alone. Both libraries write into the memory of others, and reach more of an
    adapter of 400 Gb/s than collectives do: 43.7 of 50 GB/s in the mean of their own figures for 32 and 64 ranks on
    H800 and H100, without the part of a logical bandwidth that stays in the server.
    """
    near = Min(group.size, Max(Integer(1), dom / rings))
    inside, outside = Max(Integer(1), total(near, Integer(-1))), total(group.size, product(Integer(-1), near))
    share = ex
    if "dispatch" in group.pairs and choices["dispatch"] in FLEX:
        share = ed
        copies = Max(Integer(1), xr) * c * ts / (s * b)
        domains = group.size / near
        reached = Min(domains, Max(Integer(1), gq) * Max(Integer(1), domains / Max(Integer(1), ng)))
        inside, outside = product(inside, domains), product(outside, Min(Integer(1), reached / copies))
    adapter = product(links.get(group.name, Wx) * share / 1000, term_symbol("network.unshared"))
    return Max(Integer(1), total(group.size, Integer(-1))) / Max(inside / node, outside / adapter)


def send_time(name: str, size: Expr, absent: Mapping[Expr, Expr], links: Mapping[str, Expr]) -> Expr:
    """Return seconds in which each rank of a group sends ``size`` bytes to its neighbour in another domain."""
    stride = GROUP_BY_NAME[name].stride.xreplace(absent)
    return total(total(ax, ab) / _NANO, size / _of_messages(_between(stride, links.get(name, Wx))))


def ring_time(name: str, passes: Expr, size: Expr, sent: bool = False, pairs: bool = False) -> Expr:
    """Return seconds of collectives of a group: ``passes`` passes over its ring that make ``size`` bytes whole in all.

    ``sent``: ranks pass messages on to their neighbours instead; ``pairs``: each sends every other one its own part.
    """
    ranks, rate = GROUP_BY_NAME[name].size, "send_bandwidth" if sent else "pair_bandwidth" if pairs else "bandwidth"
    return total(
        product(passes, term_symbol(f"{name}.latency")),
        product(size, total(ranks, Integer(-1))) / (ranks * term_symbol(f"{name}.{rate}")),
    )


def stream_time(size: Expr) -> Expr:
    """Return seconds in which a GPU's memory moves ``size`` bytes."""
    return size / (Wm * ew / 1000)


def host_link_time(size: Expr) -> Expr:
    """Return seconds in which ``size`` bytes pass between a GPU and the host, in one direction."""
    return size / (Wh * hl / 1000)


def host_stream_time(size: Expr) -> Expr:
    """Return seconds in which one GPU's share of its host's memory moves ``size`` bytes."""
    return size / (Wc * hm / 1000)


def beside_computing(seconds: Expr, computing: Expr) -> Expr:
    """Return the added step time of ``seconds`` of collectives that overlap ``computing``.

    They take a share of the GPU while they run, so that computing takes longer, by 18.9 % in the measurements of
    arXiv:2507.03114; what is left after it is waited for.
    """
    return Max(product(seconds, slowed) / 1000, seconds - computing)
