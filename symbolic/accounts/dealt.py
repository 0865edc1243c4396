"""Whole parameters dealt to ranks: each keeps the states of some, and the fullest rank counts.

As ``LayerWiseDistributedOptimizer.shard_params`` of megatron-core 0.16.1 deals them: sorted by their elements, from the
first rank to the last and back again. Of N ranks, rank j gets the parameters whose places in the sorted list leave j
or 2N - 1 - j when they are divided by 2N. All ranks between two at which the dealing went from one kind of parameters
to the next have the same share, so one of these, or the first, is the fullest.

With expert parallelism the matrices of routed experts, one for each expert, are dealt by themselves to the ranks that
hold the same experts, unless all else has one rank only. A rank has a place in both orders: tensor parallelism comes
first in that of all else, expert tensor parallelism and then expert parallelism in that of routed experts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sympy import Eq, Expr, Integer

from ..dimensions import OF_EXPERTS
from ..functions import CeilDiv, FloorDiv, Iverson, Max, Min
from ..implementations import Implementation
from ..ledger import Role
from ..parallel.data import bytes_per_element, states
from ..parallel.groups import GROUPS, Group
from ..parallel.pipeline import instances
from ..parallel.weights import weight_of, without_experts
from ..parameters import symbols
from ..terms import TermSet, product, term_symbol, total
from .rows import is_expert, local_shape, weight_tensors
from .units import when

D, c, t, e, et, De = symbols("D c t e et De")

#: Ranks that share out all parameters but those of routed experts.
RANKS = D * c
#: Names of the terms of the fullest rank: bytes of its states, and elements of the parameters that it updates.
BYTES, UPDATED = "stage.dealt_bytes", "stage.dealt_updated"
_EXPERT_RANKS = "stage.expert_dealt_ranks"


@dataclass(frozen=True)
class Kind:
    """Parameters of one size and with one kind of states: how many rank r has, and elements and bytes of each."""

    count: Expr
    elements: Expr
    bytes: Expr


@dataclass(frozen=True)
class Dealing:
    """Parameters that the same ranks share out.

    ``spans`` are the places in the sorted list at which each kind of those dealt begins and ends. ``firsts`` are ranks:
    the first, and each from which on the ranks have got one kind more.
    """

    dealt: tuple[Kind, ...]
    spans: tuple[tuple[Expr, Expr], ...]
    firsts: tuple[Expr, ...]
    turn: Expr

    def share(self, rank: Expr, size: str) -> Expr:
        """Return ``elements`` or ``bytes`` of a rank, which gets parameters on the way there and on the way back."""
        return total(*(
            product(getattr(kind, size), total(*(
                CeilDiv(end + offset, self.turn) - CeilDiv(begin + offset, self.turn)
                for offset in (self.turn - rank, rank + 1)
            )))
            for kind, (begin, end) in zip(self.dealt, self.spans, strict=True)
        ))


def ranks_of(group: Group) -> Expr:
    """Return how many ranks share out the parameters of a group."""
    return term_symbol(_EXPERT_RANKS) if group.expert else RANKS


def add_shares(terms: TermSet, implementation: Implementation) -> None:
    """Add the most elements of each group that one of the ranks updates; elements and bytes of the fullest rank."""
    if implementation.choices["layers"] == "experts":
        of_experts = Iverson(Eq(e, 1)) * RANKS + Iverson(e > 1) * De
        terms.add(_EXPERT_RANKS, 1 + Iverson(RANKS > 1) * (of_experts - 1), "ranks",
                  "ranks that share out the updates of routed experts")
    dealings = {group: _deal(terms, implementation, group) for group in _groups(implementation)}
    for group, dealing in dealings.items():
        name = f"stage.{group.prefix}dealt_elements"
        _add_most(terms, name, (dealing.share(first, "elements") for first in dealing.firsts), "elements",
                  f"{group.words} of the rank that updates most of them")
    for name, size, unit, meaning in (
        (BYTES, "bytes", "bytes", "states of the rank that keeps most bytes"),
        (UPDATED, "elements", "elements", "parameters of the rank that updates most elements"),
    ):
        _add_most(terms, name, (
            total(*(dealings[group].share(rank, size) for group, rank in places.items()))
            for places in _places(dealings)
        ), unit, meaning)


def _add_most(terms: TermSet, name: str, shares: Iterable[Expr], unit: str, meaning: str) -> None:
    """Add a share of each rank that may be the fullest, and the largest of them; SymPy compares symbols, not sums."""
    each = [terms.add(f"{name}_{place}", share, unit, f"rank r: {meaning}, if it is rank {place} of those looked at")
            for place, share in enumerate(shares)]
    terms.add(name, Max(*each), unit, f"rank r: {meaning}")


def gathered(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the bytes with which updated parameters are gathered: those of all ranks, and the rank's own in a row.

    Those of routed experts follow when the others' are freed.
    """
    width = bytes_per_element(states(implementation.choices), Role.WEIGHT)
    return Max(*(
        product(Iverson(ranks_of(group) > 1), width, total(
            *(product(terms[f"stage.{other.prefix}parameters"].symbol, _dealt_with(other, group))
              for other in _groups(implementation)),
            terms[f"stage.{group.prefix}dealt_elements"].symbol))
        for group in _groups(implementation)
    ))


def _groups(implementation: Implementation) -> tuple[Group, ...]:
    """Return the groups that have parameters."""
    experts = implementation.choices["layers"] == "experts"
    return tuple(group for group in GROUPS if not group.frozen and not group.fp8 and (experts or not group.expert))


def _dealt_with(group: Group, others: Group) -> Expr:
    """Return 1 where parameters of a group are dealt with those of another: routed experts without EP, and its own."""
    if group.expert:
        return Iverson(e > 1) if others.expert else Iverson(Eq(e, 1))
    return Integer(not others.expert)


def _places(dealings: Mapping[Group, Dealing]) -> Iterator[dict[Group, Expr]]:
    """Yield the places in all dealings of each rank that is first in one of them."""
    widths = {group: e * et if group.expert else t for group in dealings}
    for own, dealing in dealings.items():
        for first in dealing.firsts:
            yield {group: first if group is own else FloorDiv(first * widths[own], widths[group]) for group in dealings}


def _deal(terms: TermSet, implementation: Implementation, group: Group) -> Dealing:
    """Add where the kinds of a group begin in the sorted list and at which rank they end."""
    kinds, turn, name = _kinds(implementation, group), 2 * ranks_of(group), f"stage.{group.prefix}dealt"
    begins = [
        terms.add(f"{name}_before_{place}", _before(kinds, place), "parameters",
                  f"rank r: {group.words} dealt before those of {kind.elements} elements")
        for place, kind in enumerate(kinds)
    ]
    spans = tuple((begin, total(begin, kind.count)) for begin, kind in zip(begins, kinds, strict=True))
    firsts = (Integer(0), *(
        terms.add(f"{name}_rank_{place}", _rank_after(end, turn), "ranks",
                  f"rank that the dealing is at after all {group.words} of {kind.elements} elements")
        for place, ((_, end), kind) in enumerate(zip(spans, kinds, strict=True))
    ))
    return Dealing(kinds, spans, firsts, turn)


def _kinds(implementation: Implementation, group: Group) -> tuple[Kind, ...]:
    """Return the kinds of parameters of rank r, in the order in which those of one size are dealt: matrices first."""
    counts: dict[tuple[bool, Expr, Expr], list[Expr]] = {}
    groups = {other.expert: other for other in _groups(implementation)}
    for component, tensor, _ in weight_tensors(implementation):
        dealt_here = _dealt_with(groups[is_expert(tensor)], group)
        if dealt_here == 0:
            continue
        weight = weight_of(component, tensor, local_shape(without_experts(tensor.shape), implementation.choices))
        kept = total(*(
            product(state.bytes, weight.elements if state.count is None else state.count(weight))
            for state in states(implementation.choices) if state.role is Role.OPTIMIZER
        ))
        experts = local_shape(tuple(dimension for dimension in tensor.shape if dimension in OF_EXPERTS))
        often = product(dealt_here, instances(component.place, implementation.choices), when(tensor, implementation),
                        *experts, Iverson(weight.elements > 0))  # without shared experts there are no parameters
        counts.setdefault((weight.is_matrix, weight.elements, kept), []).append(often)
    ordered = sorted(counts.items(), key=lambda item: not item[0][0])
    return tuple(Kind(total(*often), elements, kept) for (_, elements, kept), often in ordered)


def _before(kinds: tuple[Kind, ...], place: int) -> Expr:
    """Return how many parameters are dealt before those of a kind: smaller ones, and earlier ones of its size."""
    size = kinds[place].elements
    return total(
        *(product(kind.count, 1 - Iverson(kind.elements > size)) for kind in kinds[:place]),
        *(product(kind.count, Iverson(size > kind.elements)) for kind in kinds[place + 1:]),
    )


def _rank_after(dealt: Expr, turn: Expr) -> Expr:
    """Return the rank at which the dealing is after some parameters; before it turns, the last one."""
    passed = dealt - turn * (CeilDiv(dealt + 1, turn) - 1)
    return Min(passed, turn - passed, turn / 2 - 1)
