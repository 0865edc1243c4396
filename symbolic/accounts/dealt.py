"""Whole parameters dealt to ranks: each keeps the states of some, and the fullest rank counts.

As ``LayerWiseDistributedOptimizer.shard_params`` of megatron-core 0.16.1 deals them: sorted by their elements, from the
first rank to the last and back again. Of N ranks, rank j gets the parameters whose places in the sorted list leave j
or 2N - 1 - j when they are divided by 2N. All ranks between two at which the dealing went from one kind of parameters
to the next have the same share, so one of these, or the first, is the fullest.
"""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Expr, Integer, Symbol

from ..functions import CeilDiv, Iverson, Max, Min
from ..implementations import Implementation
from ..ledger import Role
from ..parallel.data import bytes_per_element, states
from ..parallel.pipeline import instances
from ..parallel.weights import weight_of
from ..parameters import symbols
from ..terms import TermSet, product, total
from .rows import local_shape, weight_tensors
from .units import when

D, c = symbols("D c")

#: Ranks that share out the parameters, and those that the dealing passes until it is at the same place again.
RANKS = D * c
_TURN = 2 * RANKS
#: Name of the term of the states of the fullest rank.
BYTES = "stage.dealt_bytes"


@dataclass(frozen=True)
class Kind:
    """Parameters of one size and with one kind of states: how many rank r has, and elements and bytes of each."""

    count: Expr
    elements: Expr
    bytes: Expr


def add_shares(terms: TermSet, implementation: Implementation) -> Symbol:
    """Add the most elements and the most bytes of states that one of the ranks keeps, and return the former."""
    kinds = _kinds(implementation)
    begins = [
        terms.add(f"stage.dealt_before_{place}", _before(kinds, place), "parameters",
                  f"rank r: parameters dealt before those of {kind.elements} elements")
        for place, kind in enumerate(kinds)
    ]
    ends = [total(begin, kind.count) for begin, kind in zip(begins, kinds, strict=True)]
    ranks = [Integer(0), *(
        terms.add(f"stage.dealt_rank_{place}", _rank_after(end), "ranks",
                  f"rank that the dealing is at after all parameters of {kind.elements} elements")
        for place, (end, kind) in enumerate(zip(ends, kinds, strict=True))
    )]
    got = [[_got(begin, end, rank) for begin, end in zip(begins, ends, strict=True)] for rank in ranks]

    def most(sizes: list[Expr]) -> Expr:
        return Max(*(total(*map(product, sizes, share)) for share in got))

    terms.add(BYTES, most([kind.bytes for kind in kinds]), "bytes", "rank r: states of the rank that keeps most bytes")
    return terms.add("stage.dealt_elements", most([kind.elements for kind in kinds]), "elements",
                     "rank r: parameters of the rank that updates most elements")


def gathered(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the bytes with which updated parameters are gathered: those of all ranks, and the rank's own in a row."""
    sizes = (terms[f"stage.{name}"].symbol for name in ("parameters", "shard_elements"))
    return product(Iverson(RANKS > 1), bytes_per_element(states(implementation.choices), Role.WEIGHT), total(*sizes))


def _kinds(implementation: Implementation) -> tuple[Kind, ...]:
    """Return the kinds of parameters of rank r, in the order in which those of one size are dealt: matrices first."""
    counts: dict[tuple[bool, Expr, Expr], list[Expr]] = {}
    for component, tensor, _ in weight_tensors(implementation):
        weight = weight_of(component, tensor, local_shape(tensor.shape, implementation.choices))
        kept = total(*(
            product(state.bytes, weight.elements if state.count is None else state.count(weight))
            for state in states(implementation.choices) if state.role is Role.OPTIMIZER
        ))
        often = product(instances(component.place, implementation.choices), when(tensor, implementation))
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


def _rank_after(dealt: Expr) -> Expr:
    """Return the rank at which the dealing is after some parameters; before it turns, the last one."""
    passed = dealt - _TURN * (CeilDiv(dealt + 1, _TURN) - 1)
    return Min(passed, _TURN - passed, RANKS - 1)


def _got(begin: Expr, end: Expr, rank: Expr) -> Expr:
    """Return how many of the parameters from ``begin`` up to ``end`` a rank gets, on the way there and back."""
    return total(*(
        CeilDiv(end + offset, _TURN) - CeilDiv(begin + offset, _TURN) for offset in (_TURN - rank, rank + 1)
    ))
