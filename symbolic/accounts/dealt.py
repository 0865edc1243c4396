"""Whole parameters dealt to ranks: each keeps the states of some, and the fullest rank counts.

As ``LayerWiseDistributedOptimizer.shard_params`` of megatron-core 0.16.1 deals them: sorted by their elements, from the
first rank to the last and back again. Of N ranks, rank j gets the parameters whose places in the sorted list leave j
or 2N - 1 - j when they are divided by 2N. All ranks between two at which the dealing went from one kind of parameters
to the next have the same share, so one of these, or the first, is the fullest.

With expert parallelism the matrices of routed experts, one for each expert, are dealt by themselves to the ranks that
hold the same experts, unless all else has one rank only. A rank has a place in both orders: tensor parallelism comes
first in that of all else, expert tensor parallelism and then expert parallelism in that of routed experts.

FP8 parameters are dealt among the 16-bit ones, and their values are gathered in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sympy import Eq, Expr, Integer

from ..dimensions import OF_EXPERTS
from ..functions import CeilDiv, FloorDiv, Iverson, Max, Min
from ..implementations import Implementation
from ..ledger import Role
from ..parallel.data import bytes_per_element, states
from ..parallel.groups import GROUPS, Group, group_of
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
    fp8: bool


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

    def share(self, rank: Expr, size: str, fp8: tuple[bool, ...] = (False, True)) -> Expr:
        """Return ``elements`` or ``bytes`` of a rank, which gets parameters on the way there and on the way back."""
        return total(*(
            product(getattr(kind, size), total(*(
                CeilDiv(end + offset, self.turn) - CeilDiv(begin + offset, self.turn)
                for offset in (self.turn - rank, rank + 1)
            )))
            for kind, (begin, end) in zip(self.dealt, self.spans, strict=True) if kind.fp8 in fp8
        ))


def ranks_of(expert: bool) -> Expr:
    """Return how many ranks share out the parameters of routed experts, or all others."""
    return term_symbol(_EXPERT_RANKS) if expert else RANKS


def add_shares(terms: TermSet, implementation: Implementation) -> None:
    """Add the most elements of each group that one of the ranks updates; elements and bytes of the fullest rank."""
    if implementation.choices["layers"] == "experts":
        of_experts = Iverson(Eq(e, 1)) * RANKS + Iverson(e > 1) * De
        terms.add(_EXPERT_RANKS, 1 + Iverson(RANKS > 1) * (of_experts - 1), "ranks",
                  "ranks that share out the updates of routed experts")
    dealings = {expert: _deal(terms, implementation, expert) for expert in _kinds_of_ranks(implementation)}
    groups = _groups(implementation)
    for expert, dealing in dealings.items():
        together = [group for group in groups if group.expert is expert]
        for group in together:
            _add_most(terms, f"stage.{group.prefix}dealt_elements",
                      (dealing.share(first, "elements", (group.fp8,)) for first in dealing.firsts),
                      "elements", f"{group.words} of the rank that updates most of them")
        if len(together) > 1:
            _add_most(terms, _updated(together), (dealing.share(first, "elements") for first in dealing.firsts),
                      "elements", f"{together[0].words}, FP8 or not, of the rank that updates most of them")
    for name, size, unit, meaning in (
        (BYTES, "bytes", "bytes", "states of the rank that keeps most bytes"),
        (UPDATED, "elements", "elements", "parameters of the rank that updates most elements"),
    ):
        _add_most(terms, name, (
            total(*(dealings[expert].share(rank, size) for expert, rank in places.items()))
            for places in _places(dealings)
        ), unit, meaning)


def _add_most(terms: TermSet, name: str, shares: Iterable[Expr], unit: str, meaning: str) -> None:
    """Add a share of each rank that may be the fullest, and the largest of them; SymPy compares symbols, not sums."""
    each = [terms.add(f"{name}_{place}", share, unit, f"rank r: {meaning}, if it is rank {place} of those looked at")
            for place, share in enumerate(shares)]
    terms.add(name, Max(*each), unit, f"rank r: {meaning}")


def gathered(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the bytes with which updated parameters are gathered: those of all ranks, and the rank's own in a row.

    Those of routed experts follow when the others' are freed. FP8 parameters are of 16 bits there.
    """
    width, groups = bytes_per_element(states(implementation.choices), Role.WEIGHT), _groups(implementation)
    return Max(*(
        product(Iverson(ranks_of(expert) > 1), width, total(
            *(product(terms[f"stage.{group.prefix}parameters"].symbol, _dealt_with(group.expert, expert))
              for group in groups),
            terms[_updated([group for group in groups if group.expert is expert])].symbol))
        for expert in _kinds_of_ranks(implementation)
    ))


def _updated(together: Sequence[Group]) -> str:
    """Return the name of the most elements that a rank updates of groups that are dealt together."""
    return f"stage.{together[0].prefix}dealt_{'together' if len(together) > 1 else 'elements'}"


def _kinds_of_ranks(implementation: Implementation) -> tuple[bool, ...]:
    """Return for which parameters there are ranks that share them out: False, and True for those of routed experts."""
    return (False, True) if implementation.choices["layers"] == "experts" else (False,)


def _groups(implementation: Implementation) -> tuple[Group, ...]:
    """Return the groups that have parameters."""
    present = {group_of(component, tensor, is_expert(tensor), implementation.choices)
               for component, tensor, _ in weight_tensors(implementation)}
    return tuple(group for group in GROUPS if group in present)


def _dealt_with(expert: bool, others: bool) -> Expr:
    """Return 1 where parameters are dealt with others: those of routed experts without EP, and with their own kind."""
    if expert:
        return Iverson(e > 1) if others else Iverson(Eq(e, 1))
    return Integer(not others)


def _places(dealings: Mapping[bool, Dealing]) -> Iterator[dict[bool, Expr]]:
    """Yield the places in all dealings of each rank that is first in one of them."""
    widths = {expert: e * et if expert else t for expert in dealings}
    for own, dealing in dealings.items():
        for first in dealing.firsts:
            yield {other: first if other is own else FloorDiv(first * widths[own], widths[other])
                   for other in dealings}


def _deal(terms: TermSet, implementation: Implementation, expert: bool) -> Dealing:
    """Add where the kinds of parameters begin in the sorted list and at which rank they end."""
    plain = next(group for group in GROUPS if (group.expert, group.fp8, group.frozen) == (expert, False, False))
    kinds, turn, name = _kinds(implementation, expert), 2 * ranks_of(expert), f"stage.{plain.prefix}dealt"
    begins = [
        terms.add(f"{name}_before_{place}", _before(kinds, place), "parameters",
                  f"rank r: {plain.words} dealt before those of {kind.elements} elements")
        for place, kind in enumerate(kinds)
    ]
    spans = tuple((begin, total(begin, kind.count)) for begin, kind in zip(begins, kinds, strict=True))
    firsts = (Integer(0), *(
        terms.add(f"{name}_rank_{place}", _rank_after(end, turn), "ranks",
                  f"rank that the dealing is at after all {plain.words} of {kind.elements} elements")
        for place, ((_, end), kind) in enumerate(zip(spans, kinds, strict=True))
    ))
    return Dealing(kinds, spans, firsts, turn)


def _kinds(implementation: Implementation, expert: bool) -> tuple[Kind, ...]:
    """Return the kinds of parameters of rank r, in the order in which those of one size are dealt: matrices first."""
    choices = implementation.choices
    counts: dict[tuple[bool, Expr, Expr, bool], list[Expr]] = {}
    for component, tensor, _ in weight_tensors(implementation):
        dealt_here = _dealt_with(is_expert(tensor), expert)
        if dealt_here == 0:
            continue
        weight = weight_of(component, tensor, local_shape(without_experts(tensor.shape), choices))
        group = group_of(component, tensor, is_expert(tensor), choices)
        kept = total(*(
            product(state.bytes, weight.elements if state.count is None else state.count(weight))
            for state in states(choices, group) if state.role is Role.OPTIMIZER
        ))
        experts = local_shape(tuple(dimension for dimension in tensor.shape if dimension in OF_EXPERTS))
        often = product(dealt_here, instances(component.place, choices), when(tensor, implementation),
                        *experts, Iverson(weight.elements > 0))  # without shared experts there are no parameters
        counts.setdefault((weight.is_matrix, weight.elements, kept, group.fp8), []).append(often)
    ordered = sorted(counts.items(), key=lambda item: not item[0][0])
    return tuple(Kind(total(*often), elements, kept, fp8) for (_, elements, kept, fp8), often in ordered)


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
