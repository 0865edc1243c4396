"""Sizes of what a forward pass and the backward pass of another micro-batch hold beside each other in turns.

Read in Megatron-Core's ``model_chunk_schedule_plan`` and ``fine_grained_callables``, counted on its own models. At each
moment one pass is inside of the experts. The forward pass has gone through attention and router, the backward pass has
not gone back through them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Eq, Expr, Gt, Integer

from ...dimension import Dimension
from ...dimensions import BATCH, HIDDEN, RECEIVED, RECEIVED_SHARE, ROW_MAP, SENT, SEQUENCE_SP
from ...functions import Divides, FloorDiv, Iverson, Max
from ...implementations import Implementation
from ...ledger import Place, Role
from ...parallel.pipeline import chunk_layers, chunks, ends
from ...parameters import symbols
from ...systems.combined_passes import COMBINED, NAME
from ...terms import TermSet, product, total
from ..expert_layers import at_work, first_has_experts
from ..rows import kept_rows, local_shape
from .megatron import received_gradient, sent_gradient

m, nr, p, r, V, Gr, Ler, fs = symbols("m nr p r V Gr Ler fs")

_SHARE = (SEQUENCE_SP, BATCH, HIDDEN)
_SHARED = Iverson(fs > 0)
#: Dimensions of what experts save: all behind the tokens' arrival.
_BEHIND = {RECEIVED, RECEIVED_SHARE}


def _bytes(size: int, shape: tuple[Dimension, ...], implementation: Implementation) -> Expr:
    return product(Integer(size), *local_shape(shape, implementation.choices))


def _steady(implementation: Implementation) -> Expr:
    """1 if any passes of the rank take turns."""
    return Iverson(Gt(m * chunks(implementation.choices), nr))


def _before_experts(implementation: Implementation) -> Expr:
    """Return the tensors that a layer saves before its tokens are sent."""
    return total(*(
        row.expression for row in kept_rows(implementation)
        if row.component.place in (Place.LAYER, Place.EXPERTS) and row.tensor.role is Role.ACTIVATION
        and not row.tensor.sites and not row.tensor.checkpoint and _BEHIND.isdisjoint(row.tensor.shape)
    ))


def _weights(tokens: Dimension, implementation: Implementation) -> Expr:
    return _bytes(4 if implementation.choices["router_precision"] == "fp32" else 2, (tokens,), implementation)


def _on_their_way(implementation: Implementation) -> Expr:
    """Return tokens about to be sent with their weights, or their gradients."""
    return total(_bytes(2, (SENT, HIDDEN), implementation), _weights(SENT, implementation))


def _beside(implementation: Implementation, *sizes: Expr) -> Expr:
    both = total(_before_experts(implementation), _on_their_way(implementation), *sizes)
    return product(_steady(implementation), at_work(implementation), both)


def other_backward(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what a backward pass that is done with the experts holds beside a forward pass inside of them.

    Gradients of the layer's output, of what goes around the experts and of the result of shared ones; the weights of
    tokens that arrived, and their gradient, until the layer is done.
    """
    share = _bytes(2, _SHARE, implementation)
    return _beside(implementation, 2 * share, product(_SHARED, share), 2 * _weights(RECEIVED_SHARE, implementation))


def other_forward(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what a forward pass about to send its tokens holds beside a backward pass inside of the experts."""
    return _beside(implementation)


def bound_layers(terms: TermSet, implementation: Implementation) -> Expr:
    """Return inputs of layers and their gradients that dispatchers hold until the next forward pass of the layer.

    A dispatcher binds the weights of the last tokens, these the graph of attention, and the graph the layer's input
    and its gradient. Of a chunk whose last micro-batch of a group goes back before the next group's first one comes,
    all layers are held meanwhile: so many chunks as lie ahead of the middle by more than the rank leads. Where both
    passes are of one chunk, up to a half of its layers are.
    """
    choices = implementation.choices
    share, maps = _bytes(2, _SHARE, implementation), _bytes(4, (SEQUENCE_SP, BATCH, ROW_MAP), implementation)
    each, count = total(2 * share, maps), chunk_layers(choices)
    # Of an odd chunk the newest gradient in its middle is the one that the layer at work gets.
    half = FloorDiv(count - 1, Integer(2))
    odd = product(Iverson(Gt(half, 0)), Iverson(Divides(Integer(2), count - 1)))
    together = total(product(half, each), product(Integer(-1), odd, share))
    lead = 2 * (p - 1 - r)
    if chunks(choices) == 1:
        held = together
    else:
        ahead, groups = total(product(V - 1, Gr), lead), Iverson(Gt(m, Gr))
        # The next forward pass of an innermost chunk may follow at once, or run beside the backward pass.
        at_once, meeting = (Iverson(Divides(2 * Gr, total(ahead, further))) for further in (Integer(1), Integer(0)))
        whole = total(product(V - 1 - FloorDiv(ahead, 2 * Gr), count, each), -product(at_once, total(each, share)))
        held = Max(product(groups, total(whole, product(meeting, together))), product(Iverson(Eq(lead, 0)), together))
    return product(_steady(implementation), at_work(implementation), held)


def held_in_backward(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what the output of a chunk that is not the model's last one holds until the chunk has gone back.

    It is the graph in which results are added: its inputs, but for results of experts, and the gradients of all. Of the
    layer at work they are counted. A chunk of one layer has the gradient that it received as that of its output.
    """
    share = _bytes(2, _SHARE, implementation)
    graph = total(product(2 * (1 + _SHARED), share), _bytes(2, (RECEIVED, HIDDEN), implementation))
    return _held(implementation, graph, -share)


def held_in_forward(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the same beside a forward pass, for which the gradient of the layer's results is not counted."""
    share, results = _bytes(2, _SHARE, implementation), _bytes(2, (RECEIVED, HIDDEN), implementation)
    return _held(implementation, total(product(2 * (1 + _SHARED), share), results), results - share)


def _held(implementation: Implementation, of_several: Expr, of_one: Expr) -> Expr:
    """Return what is held by the output of a chunk of several layers, or of one."""
    if chunks(implementation.choices) == 1:
        return Integer(0)
    several = Iverson(Gt(chunk_layers(implementation.choices), 1))
    held = total(product(several, of_several), product(1 - several, of_one))
    none = 1 - _last_alone(implementation)
    return product(_steady(implementation), at_work(implementation), Iverson(V > 1), none, held)


def _last_alone(implementation: Implementation) -> Expr:
    """1 on the last rank with one group of micro-batches: both passes are of the last chunk, which sends nothing yet.

    It is 0 where a rank has one chunk.
    """
    if chunks(implementation.choices) == 1:
        return Integer(0)
    return product(Iverson(V > 1), Iverson(Eq(r, p - 1)), 1 - Iverson(Gt(m, Gr)))


def exchanged_in_forward(terms: TermSet, implementation: Implementation) -> Expr:
    """Return, with a minus, gradients received and sent that the last rank does not have in its last chunk."""
    none = total(sent_gradient(terms, implementation), received_gradient(terms, implementation))
    return product(Integer(-1), _last_alone(implementation), none)


def exchanged_in_backward(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the gradient received for a chunk, held until it has gone back, less what the last rank has not sent."""
    alone = _last_alone(implementation)
    return total(product(1 - alone, received_gradient(terms, implementation)),
                 product(Integer(-1), alone, sent_gradient(terms, implementation)))


def bound_in_the_end(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the same of all layers in the optimizer step; the input of a stage without the first one is counted."""
    own = 1 - Iverson(Eq(r, ends(implementation.choices)[0]))
    held = 2 * Ler - product(own, first_has_experts(implementation))
    return product(_bytes(2, _SHARE, implementation), held)


def at_both_ends(terms: TermSet, implementation: Implementation) -> Expr:
    """Return, of a model on one rank, the next micro-batch's embedded tokens, or the gradient of the last one's."""
    return product(Iverson(Eq(p, 1)), _steady(implementation), _bytes(2, _SHARE, implementation))


_CHOSEN: Mapping[str, tuple[str, ...]] = {NAME: COMBINED, "peak": ("megatron_te",)}

#: Name, title, moments and size of each, which has the options ``CHOSEN``.
SIZES: tuple[Any, ...] = (
    ("other_backward", "Backward pass of another micro-batch, behind its experts", ("experts_forward",),
     other_backward, _CHOSEN),
    ("other_forward", "Forward pass of another micro-batch, before its experts",
     ("combine_backward", "experts_backward"), other_forward, _CHOSEN),
    ("bound_layers", "Inputs and gradients of layers that dispatchers hold",
     ("experts_forward", "combine_backward", "experts_backward"), bound_layers, _CHOSEN),
    ("held_in_forward", "Graph of a chunk's output, and its gradients", ("experts_forward",), held_in_forward,
     _CHOSEN),
    ("held_in_backward", "Graph of a chunk's output, and its gradients", ("combine_backward", "experts_backward"),
     held_in_backward, _CHOSEN),
    ("exchanged_in_forward", "Gradients exchanged by no chunk but the last", ("experts_forward",),
     exchanged_in_forward, _CHOSEN),
    ("exchanged_in_backward", "Gradient that the chunk has received", ("combine_backward", "experts_backward"),
     exchanged_in_backward, _CHOSEN),
    ("bound_to_dispatchers", "Inputs and gradients of layers that dispatchers hold until the next step",
     ("optimizer_step",), bound_in_the_end, _CHOSEN),
    ("other_end", "Embedded tokens of the next micro-batch, or the gradient of the last one's",
     ("loss_forward", "loss_backward", "head_backward"), at_both_ends, _CHOSEN),
)
