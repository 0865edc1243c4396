"""The groups of ranks that communicate: how many, how far apart, and what a ring of them carries.

Ranks are numbered as Megatron-LM does: tensor parallelism first, then context, expert and data parallelism, the
pipeline last, unless it is placed elsewhere. Neighbours of a group are ``stride`` ranks apart. Where a group does not
lie inside one domain, as many rings leave the domain at once as it has groups; together they have all of its network
adapters. A pass over a ring takes a step for every rank but one, some of them between domains.
"""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Eq, Expr, Ge, Integer, Le

from ..functions import CeilDiv, Iverson, Min
from ..parameters import symbols
from ..terms import TermSet, product, term_symbol, total

t, c, p, D, R, e, et, De, order = symbols("t c p D R e et De ord")
Wn, Wx, dom, an, ax, en, ex = symbols("Wn Wx dom an ax en ex")
_NANO = Integer(10) ** 9


@dataclass(frozen=True)
class GroupOfRanks:
    """One dimension of the mesh: its size, the distance of its neighbours, and what it is for."""

    name: str
    size: Expr
    stride: Expr
    meaning: str
    experts: bool = False


#: Ranks of the pipeline that are counted before those of context and of data parallelism.
_BEFORE_CONTEXT = 1 + Iverson(Eq(order, 2)) * (p - 1)
_BEFORE_DATA = 1 + Iverson(Ge(order, 1)) * (p - 1)

GROUPS_OF_RANKS: tuple[GroupOfRanks, ...] = (
    GroupOfRanks("tensor", t, Integer(1), "tensor-parallel ranks"),
    GroupOfRanks("context", c, t * _BEFORE_CONTEXT, "context-parallel ranks"),
    GroupOfRanks("data", D * c / R, t * _BEFORE_CONTEXT, "ranks that hold the same parameters, or share them out"),
    GroupOfRanks("replica", R, t * D * c * _BEFORE_DATA / R, "ranks that hold the same share of parameters"),
    GroupOfRanks("expert_tensor", et, Integer(1), "ranks that share the width of experts", experts=True),
    GroupOfRanks("expert", e, et, "ranks that share out experts", experts=True),
    GroupOfRanks("expert_all", e * et, Integer(1), "ranks that share out experts and their width", experts=True),
    GroupOfRanks("expert_data", De / R, e * et, "ranks that hold the same experts, or share them out", experts=True),
    GroupOfRanks("expert_replica", R, e * et * De / R, "ranks that hold the same share of experts", experts=True),
    GroupOfRanks("pipeline", p, t * (1 + Iverson(Le(order, 1)) * (c - 1)) * (1 + Iverson(Eq(order, 0)) * (D - 1)),
                 "pipeline stages"),
)

GROUP_BY_NAME: dict[str, GroupOfRanks] = {group.name: group for group in GROUPS_OF_RANKS}


def add_groups(terms: TermSet, experts: bool) -> None:
    """Bandwidth of a ring and latency of one of its steps, for every group."""
    for group in GROUPS_OF_RANKS:
        if group.experts and not experts:
            continue
        span = product(group.size, group.stride)
        inside = Iverson(Le(span, dom))
        rings = Min(group.stride, dom)
        node, network = Wn * en / 1000, Wx * ex / 1000
        terms.add(f"{group.name}.bandwidth", total(product(inside, node),
                                                   product(1 - inside, Min(node, network * dom / rings))),
                  "bytes/s", f"bandwidth of a ring of {group.meaning}, of each rank in one direction")
        borders = product(1 - inside, total(Min(group.size, CeilDiv(span, dom)), Integer(-1)))
        crossed = terms.add(f"{group.name}.borders", borders, "steps",
                            f"steps of a ring of {group.meaning} that cross from one domain to the next")
        steps = total(group.size, Integer(-1))
        terms.add(f"{group.name}.latency", total(product(crossed, ax - an), product(steps, an)) / _NANO, "s",
                  f"latency of one pass over a ring of {group.meaning}")


def ring_time(name: str, passes: Expr, size: Expr) -> Expr:
    """Seconds of collectives of a group: ``passes`` passes over its ring that make ``size`` bytes whole in all."""
    ranks = GROUP_BY_NAME[name].size
    return total(
        product(passes, term_symbol(f"{name}.latency")),
        product(size, total(ranks, Integer(-1))) / (ranks * term_symbol(f"{name}.bandwidth")),
    )
