"""Sizes of what lives in Megatron-Core beside the tokens of experts, and depends on what was freed before.

Read in Megatron-Core's layers and checkpoints, counted on its own layers with experts.
"""

from __future__ import annotations

from sympy import Expr, Integer

from ...dimension import Dimension
from ...dimensions import BATCH, HIDDEN, RECEIVED, RECEIVED_SHARE, SENT, SEQUENCE_SP
from ...expert_layers import AFAR, GATHERED, LEAVE, SEVERAL
from ...functions import Iverson, Max
from ...implementations import Implementation
from ...ledger import Place
from ...parameters import symbols
from ...systems.combined_passes import are_combined
from ...terms import TermSet, product, total
from ..expert_layers import at_work
from ..recomputed import again
from ..rows import local_shape
from .megatron import BOUND_INPUTS, input_before, received_gradient

fs, rfull, rmoe = symbols("fs rfull rmoe")

_SHARE = (SEQUENCE_SP, BATCH, HIDDEN)
_SHARED = Iverson(fs > 0)
_ALL_KEPT = "all_kept"


def _bytes(size: int, shape: tuple[Dimension, ...], implementation: Implementation) -> Expr:
    return product(Integer(size), *local_shape(shape, implementation.choices))


def combined_results(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what the sum of routed and shared results needs beyond the results before they are sent back.

    A token with one routed expert has results as large as itself: these, their sum and that with the result of shared
    experts are more than results of the experts and the same sorted. Where passes take turns, tokens that arrived are
    let go of by then, and results sorted are not.
    """
    if are_combined(implementation.choices):
        received, back, stream = (
            _bytes(2, shape, implementation) for shape in ((RECEIVED, HIDDEN), (SENT, HIDDEN), _SHARE))
        return product(at_work(implementation), Max(Integer(0), back + stream * (1 + _SHARED) - 2 * received))
    results, share, whole = (_bytes(2, (tokens, HIDDEN), implementation) for tokens in (RECEIVED, RECEIVED_SHARE, SENT))
    # In fp32 a copy of the results and their sums, in 16 bits these alone.
    reduced = 2 * (results + share) if implementation.choices["router_precision"] == "fp32" else share
    freed = total(results, product(SEVERAL, LEAVE, results), product(GATHERED, reduced))
    made = total(product(AFAR, SEVERAL, whole), 2 * _bytes(2, _SHARE, implementation))
    return product(_SHARED, at_work(implementation), Max(Integer(0), made - freed))


def recomputed_experts(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the saved tensors of a layer with experts that was recomputed, or of its group, with its output.

    Of a layer whose router and experts alone are recomputed these are theirs.
    """
    whole = product(rfull, again(terms, implementation, Place.EXPERTS, with_output=True))
    return product(at_work(implementation), total(whole, _router_and_experts(terms, implementation)))


def _router_and_experts(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the saved tensors of a layer's router and experts where they alone are recomputed, with their output."""
    saved = "expert_layer.saved"
    if f"{_ALL_KEPT}.{saved}" not in terms:
        terms.at(_ALL_KEPT, (saved,), {rmoe: Integer(0)}, words="without recompute of router and experts alone")
    dropped = terms[f"{_ALL_KEPT}.{saved}"].symbol - terms[saved].symbol
    return total(dropped, product(rmoe, _bytes(2, _SHARE, implementation)))


def recomputed_results(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what results of experts have more beside them in a recomputed layer than in its forward pass.

    That is saved tensors and the gradient of its output, beside it a gradient and an input that are bound.
    """
    inside = total(again(terms, implementation, Place.EXPERTS, with_output=False), _bytes(2, _SHARE, implementation))
    outside = received_gradient(terms, implementation)
    if implementation.choices["schedule"] in BOUND_INPUTS:
        outside = total(outside, input_before(terms, implementation))
    whole = product(rfull, Max(Integer(0), inside - outside))
    return product(at_work(implementation), total(whole, _outside_of_it(terms, implementation, outside)))


def _outside_of_it(terms: TermSet, implementation: Implementation, outside: Expr) -> Expr:
    """Return what recomputed router and experts have more beside them than in the layer's forward pass."""
    return product(rmoe, Max(Integer(0), _router_and_experts(terms, implementation) - outside))
