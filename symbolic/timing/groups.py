"""The groups of ranks that communicate: how many, how far apart, and what a ring of them carries.

Ranks are numbered as Megatron-LM does: tensor parallelism first, then context, expert and data parallelism, the
pipeline last. Neighbours of a group are ``stride`` ranks apart, and where a group does not lie inside one domain, as
many rings leave the domain at once as it has groups; together they have all of its network adapters.
"""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Expr, Integer, Le

from ..functions import Iverson, Min
from ..parameters import symbols
from ..terms import TermSet, product, term_symbol, total

t, c, p, D, R, e, et, De = symbols("t c p D R e et De")
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


GROUPS_OF_RANKS: tuple[GroupOfRanks, ...] = (
    GroupOfRanks("tensor", t, Integer(1), "tensor-parallel ranks"),
    GroupOfRanks("context", c, t, "context-parallel ranks"),
    GroupOfRanks("data", D * c / R, t, "ranks that hold the same parameters, or share them out"),
    GroupOfRanks("replica", R, t * D * c / R, "ranks that hold the same share of parameters"),
    GroupOfRanks("expert_tensor", et, Integer(1), "ranks that share the width of experts", experts=True),
    GroupOfRanks("expert", e, et, "ranks that share out experts", experts=True),
    GroupOfRanks("expert_all", e * et, Integer(1), "ranks that share out experts and their width", experts=True),
    GroupOfRanks("expert_data", De / R, e * et, "ranks that hold the same experts, or share them out", experts=True),
    GroupOfRanks("expert_replica", R, e * et * De / R, "ranks that hold the same share of experts", experts=True),
    GroupOfRanks("pipeline", p, t * c * D, "pipeline stages"),
)

GROUP_BY_NAME: dict[str, GroupOfRanks] = {group.name: group for group in GROUPS_OF_RANKS}


def add_groups(terms: TermSet, experts: bool) -> None:
    """Bandwidth of a ring and latency of one of its steps, for every group."""
    for group in GROUPS_OF_RANKS:
        if group.experts and not experts:
            continue
        inside = Iverson(Le(product(group.size, group.stride), dom))
        rings = Min(group.stride, dom)
        node, network = Wn * en / 1000, Wx * ex / 1000
        terms.add(f"{group.name}.bandwidth", total(product(inside, node),
                                                   product(1 - inside, Min(node, network * dom / rings))),
                  "bytes/s", f"bandwidth of a ring of {group.meaning}, of each rank in one direction")
        terms.add(f"{group.name}.latency", total(product(inside, an), product(1 - inside, ax)) / _NANO, "s",
                  f"latency of one step of a ring of {group.meaning}")


def ring_time(name: str, passes: Expr, size: Expr) -> Expr:
    """Seconds of collectives of a group: ``passes`` passes over its ring that make ``size`` bytes whole in all."""
    ranks = GROUP_BY_NAME[name].size
    steps = total(ranks, Integer(-1))
    return total(
        product(passes, steps, term_symbol(f"{name}.latency")),
        product(size, steps) / (ranks * term_symbol(f"{name}.bandwidth")),
    )
