"""DeepSpeed's ZeRO: buckets of gradients, gathered parameters and copies of gradients at the moments of a step.

The tensors that a rank's part cuts, and those gathered in stage 3, depend on the order of the parameters; both are
written as the most that they can be. All else is exact.
"""

from __future__ import annotations

from typing import Any

from sympy import Eq, Expr, Ge, Gt, Integer, Le

from ...dimensions import BATCH, HIDDEN, SEQUENCE
from ...functions import CeilDiv, Iverson, Max, Min
from ...implementations import Implementation
from ...ledger import Place
from ...parallel.deepspeed import ADDS_WHOLE, KEEPS_TENSORS, STAYS, compute_bytes
from ...parallel.groups import GROUPS
from ...parameters import symbols
from ...terms import TermSet, product, total
from ..layers.moments import moments as layer_moments
from ..layers.transformers import Layer
from ..pytorch.gathered import outside, per_layer
from ..pytorch.gradients import of_both_ends, tied_head, while_passing
from ..rows import local_shape
from .frozen import largest_matrix

D, c, R, w, m, h, rfull, Lr = symbols("D c R w m h rfull Lr")
zero1, zero2, zero3, shards = symbols("zero1 zero2 zero3 shards")
bk, pf, pt, ml, mr, sg, ovl, tied = symbols("bk pf pt ml mr sg ovl tied")

#: Bytes of an element that are alive at once in a step of PyTorch's AdamW, beside states and gradients.
_TEMPORARIES = {"fused": 0, "foreach": 4, "loop": 8}
#: 1 in stages 1 and 2.
_FLAT = zero1 * (1 - zero3)


def _width(implementation: Implementation) -> Expr:
    """Return the bytes of a gathered element, and of one in a bucket."""
    return compute_bytes(implementation.choices["precision"])


def _all(terms: TermSet, kind: str) -> Expr:
    """Return a sum over all trained parameters: those of routed experts are as the others are."""
    names = (f"stage.{group.prefix}{kind}" for group in GROUPS if not group.frozen)
    return total(*(terms[name].symbol for name in names if name in terms))


def _part(terms: TermSet) -> Expr:
    """Return elements of a rank's part, with padding."""
    return _all(terms, "buffer_elements") / shards


def _cut(terms: TermSet, implementation: Implementation) -> Expr:
    return KEEPS_TENSORS * _rest(terms, implementation)


def _rest(terms: TermSet, implementation: Implementation) -> Expr:
    """At most: the rest of the two tensors that a part cuts; both vocabulary matrices only with nearly all between."""
    inner, outer = largest_matrix(implementation, True, True), largest_matrix(implementation, False, True)
    parameters, part = _all(terms, "parameters"), _part(terms)
    other = Max(inner, outer * Iverson(Ge(part + 2 * outer, parameters)))
    return _width(implementation) * Max(Integer(0), Min(parameters - part, Max(inner, outer) + other))


def _bucket(terms: TermSet, implementation: Implementation) -> Expr:
    """Return two of them if they are reduced while the next is filled, which stage 3 does with one."""
    return _width(implementation) * bk * (_FLAT * (1 + ovl) + zero3)


def _lasting_bucket(terms: TermSet, implementation: Implementation) -> Expr:
    """In the forward pass: stage 3 makes it once; stage 1 keeps it until the last micro-batch is reduced."""
    return _width(implementation) * bk * (zero3 + ADDS_WHOLE * (1 + ovl))


def _whole_gradients(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what stage 1 has of gradients beyond those of its part, before it reduces them."""
    part = terms["stage.gradient"].symbol + _cut(terms, implementation)
    return STAYS * Max(Integer(0), _all_gradients(terms, implementation) - part)


def _new_gradients(terms: TermSet, implementation: Implementation) -> Expr:
    """At most: in stage 2 those of the part that a further micro-batch makes, beside the sums of those before."""
    return zero2 * KEEPS_TENSORS * Iverson(m > 1) * _kept_gradients(terms, implementation)


def _all_gradients(terms: TermSet, implementation: Implementation) -> Expr:
    return _width(implementation) * _all(terms, "parameters")


def _stage3_bucket(terms: TermSet, implementation: Implementation) -> Expr:
    return _width(implementation) * bk * zero3


def _reduced(terms: TermSet, implementation: Implementation) -> Expr:
    """Return a copy of what is in the bucket: flattened for the all-reduce, or put in the order of the ranks."""
    return _width(implementation) * zero1 * Min(bk, _all(terms, "buffer_elements"))


def _reduced_before_the_end(terms: TermSet, implementation: Implementation) -> Expr:
    """With a bucket that gets full, it is reduced between layers."""
    return _width(implementation) * zero1 * bk * Iverson(Gt(_all(terms, "buffer_elements"), bk))


def _whole(terms: TermSet) -> Expr:
    frozen = terms.terms.get("stage.frozen_buffer_elements")
    return total(_all(terms, "buffer_elements"), frozen.symbol if frozen else Integer(0))


def _let_go(terms: TermSet, implementation: Implementation) -> Expr:
    """Return elements that do not stay gathered as small parameters do."""
    return _whole(terms) - (terms["stage.weight"].symbol / _width(implementation) - _part(terms))


def _beside_work(beyond: Expr) -> Expr:
    """Return elements that are gathered at most without being at work: ``beyond`` is the one that exceeds a limit."""
    return Max(Iverson(mr > 0) * (CeilDiv(mr, 2 + rfull) + beyond), Iverson(pf > 0) * (ml + beyond))


def _largest_gathered(implementation: Implementation) -> Expr:
    return Max(*(largest_matrix(implementation, inside) for inside in (True, False)))


def gathered(terms: TermSet, implementation: Implementation) -> Expr:
    """At most: parameters at work, and those that stay until they are used again or were gathered ahead.

    A parameter stays if its backward pass comes within the reuse distance, that is, if half of it covers what
    follows in the forward pass; with recompute a third. Every module gathers some ahead as long as fewer are there
    than the limit of live parameters. Limits are looked at before a parameter, so that one may exceed them.
    """
    inner = largest_matrix(implementation, True)
    most = Min(_whole(terms), _largest_gathered(implementation) + _beside_work(inner))
    return _width(implementation) * zero3 * most


def _gathered_with(terms: TermSet, implementation: Implementation, at_work: Expr, beyond: Expr) -> Expr:
    """At most: the same in PyTorch's own step, and the flat tensor in which several parameters arrive.

    The flat tensor stays until the last of them is at work.
    """
    flat = _some_go(terms) * Min(_let_go(terms, implementation), _arrived(implementation))
    return _width(implementation) * zero3 * (Min(_let_go(terms, implementation), at_work + _beside_work(beyond)) + flat)


def _arrived(implementation: Implementation) -> Expr:
    """Return the elements that are gathered together at most: one parameter may exceed the limits."""
    return Iverson(pf > 0) * (Min(pf, ml) + _largest_gathered(implementation))


def _in_forward_pass(terms: TermSet, implementation: Implementation) -> Expr:
    """At most: in stage 3 the last layer at work in its forward pass, or the final norm, with what is gathered.

    All parameters may arrive in one flat tensor, of which the last one at work is the head. Without recompute the model
    holds numbers of positions, the output of the embedding, and that of the layer before.
    """
    width, inner = _width(implementation), largest_matrix(implementation, True)
    residual = product(Integer(2), *local_shape((SEQUENCE, BATCH, HIDDEN)))
    held = (1 - rfull) * (residual + product(Integer(8), *local_shape((SEQUENCE,))))
    there = Min(_let_go(terms, implementation), inner + _beside_work(_largest_gathered(implementation)))
    flat = Min(_let_go(terms, implementation), _arrived(implementation))
    at_work = (rfull * Max(*layer_moments(implementation, is_forward=True, saves=False))
               + (1 - rfull) * (Iverson(Gt(Lr, 1)) * residual + Max(*layer_moments(implementation, is_forward=True))))
    normed = (residual + terms["final_norm.saved"].symbol
              + Max(*layer_moments(implementation, Layer.run_final_norm, is_forward=True)))
    return zero3 * (terms["stage.inner_activations"].symbol + held + width * (there + flat)
                    + Max(at_work, normed))


def _some_go(terms: TermSet) -> Expr:
    """1 if the reuse distance does not cover the forward pass of the model, its recompute and its backward pass."""
    return Iverson(Gt((2 + rfull) * _whole(terms), mr))


def _gathered_in_loss(terms: TermSet, implementation: Implementation) -> Expr:
    return _gathered_with(terms, implementation, Integer(0), _largest_gathered(implementation))


def _gathered_at_work(terms: TermSet, implementation: Implementation) -> Expr:
    inner = largest_matrix(implementation, True)
    return _gathered_with(terms, implementation, _largest_gathered(implementation), inner)


def _gathered_in_layer(terms: TermSet, implementation: Implementation) -> Expr:
    """At most: with recompute what the layer gathers stays, as its checkpoint holds it, and is gathered once more.

    Weights at work then are no more than those of the layer's products that are done.
    """
    at_work = (1 - rfull) * largest_matrix(implementation, True)
    held = _width(implementation) * zero3 * rfull * _some_go(terms) * per_layer(terms, "aligned")
    return _gathered_with(terms, implementation, at_work, _largest_gathered(implementation)) + held


def _gathered_embedding(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the embedding, which stage 3 lets go of when its gradient is reduced."""
    elements = terms["embedding.aligned"].symbol
    return _width(implementation) * zero3 * elements * Iverson(Gt(elements, pt))


def _kept_part(terms: TermSet, implementation: Implementation) -> Expr:
    """Return gradients of the rank's part, which stage 3 makes once, and a step counter of each group but the first.

    A group has as many elements as asked for or more, so they are at most as many.
    """
    groups = CeilDiv(_part(terms), sg)
    return zero3 * (terms["stage.gradient"].symbol + 4 * (groups - 1))


def _gradient_copies(terms: TermSet, implementation: Implementation) -> Expr:
    """fp32 gradients of the part, made of a flat copy of bf16 ones; stage 3 goes by groups of parameters.

    The flat copy is gone when the optimizer runs, and in stages 1 and 2 the bf16 gradients are too. Then PyTorch's own
    kernels make fp32 temporaries as large as the part or group; stage 0 has all parameters, one by one in a loop. The
    norm of gradients is that of a copy in fp64, tensor by tensor.
    """
    parameters, part = _all(terms, "parameters"), _part(terms)
    largest = _largest(implementation)
    narrow, kernel = Iverson(Eq(w, 2)), implementation.choices["optimizer_kernel"]
    own, group = _TEMPORARIES[kernel], Min(part, sg + CeilDiv(largest, shards))
    alone = own * largest + 4 * h if kernel == "loop" else own * parameters
    flat = Max(max(6, 4 + own - 2) * part, 8 * Min(part, largest))
    return ((1 - zero1) * (4 * parameters + alone) + _FLAT * (narrow * flat + (1 - narrow) * own * part)
            + zero3 * Max(Max(4 + 2 * narrow, 4 + own) * group, 8 * CeilDiv(largest, shards)))


def _viewed(terms: TermSet, implementation: Implementation) -> Expr:
    """Return gathered experts that saved tensors are views of: DeepSpeed lets go of them, the views do not.

    A recomputed layer makes its views when it runs again, of what its backward pass gathers anyway.
    """
    return _width(implementation) * zero3 * (1 - rfull) * terms["stage.expert_parameters"].symbol


def _fits(terms: TermSet) -> Expr:
    """1 if one bucket has all gradients."""
    return Iverson(Le(_all(terms, "parameters"), bk))


def _kept_gradients(terms: TermSet, implementation: Implementation) -> Expr:
    """Return reduced gradients of all tensors that a rank's part cuts, at most."""
    return (1 - zero3) * (_width(implementation) * _part(terms) + _rest(terms, implementation))


def _accumulated(terms: TermSet, implementation: Implementation) -> Expr:
    """Return sums over earlier micro-batches: in stage 1 of all parameters, in stage 2 of the rank's part."""
    return ADDS_WHOLE * _all_gradients(terms, implementation) + _accumulated_part(terms, implementation)


def _accumulated_part(terms: TermSet, implementation: Implementation) -> Expr:
    return zero2 * Iverson(m > 1) * _kept_gradients(terms, implementation)


def _tied(terms: TermSet, implementation: Implementation) -> Expr:
    return _width(implementation) * tied_head(terms)


def _made_with_the_first_gradient(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what the first bucket finds beyond the moments of the final norm: the head's gradients, if it is no other.

    A tied head's gradient waits for the embedding's, and gradients that stay are there at those moments too. Stage 3
    has its bucket from the start: there a head that fits into none is reduced, at most in a copy.
    """
    width, tokens = _width(implementation), product(*local_shape((SEQUENCE, BATCH, HIDDEN)))
    head = outside(terms, implementation, "parameters", Place.LAST) - terms["final_norm.parameters"].symbol
    stays = STAYS * width * head
    made = (1 - zero3) * (width * (head + tokens) - stays)
    reduced = zero3 * Iverson(Gt(head, bk)) * width * (2 * head + tokens)
    inside = terms["stage.norm_temporaries.norm_backward"].symbol - terms["final_norm.saved"].symbol
    return _tied(terms, implementation) + (1 - tied) * ((1 - zero3) * stays + Max(Integer(0), made + reduced - inside))


def _passed(terms: TermSet, implementation: Implementation) -> Expr:
    """Return gradients that stay, of the head and passed layers, less what these free; a tied head's in any case."""
    moment, = while_passing(terms, implementation, _width(implementation), STAYS)
    return moment


def _embedding(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the embedding's gradients, and all others where they stay."""
    own = _width(implementation) * terms["embedding.parameters"].symbol
    return of_both_ends(terms, implementation) + STAYS * (_all_gradients(terms, implementation) - own)


def _between_layers(terms: TermSet, implementation: Implementation) -> Expr:
    """With a bucket that gets full, or a matrix that fits into none: its copy, that matrix, what is kept; at most.

    Stage 1 lets go of other ranks' matrices of this size when the backward pass is over.
    """
    stays = (1 - zero2) * Iverson(Gt(_largest(implementation), bk)) * _all_gradients(terms, implementation)
    return (1 - STAYS) * (_reduced_at_a_time(terms, implementation) + stays)


def _before_layers(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the same in the final norm: stage 3 has reduced the head's gradient before most is there."""
    return (1 - zero3) * _between_layers(terms, implementation)


def _largest(implementation: Implementation) -> Expr:
    return Max(*(largest_matrix(implementation, inside, True) for inside in (True, False)))


def _reduced_at_a_time(terms: TermSet, implementation: Implementation) -> Expr:
    largest = _largest(implementation)
    waiting = Iverson(Gt(largest, bk)) * largest
    made = _width(implementation) * (Max(bk, waiting) + waiting) + _kept_gradients(terms, implementation)
    return (1 - _fits(terms)) * made


def _in_the_end(terms: TermSet, implementation: Implementation) -> Expr:
    """Return a copy of the bucket, or with one rank the gradients that are left; with several buckets, at most."""
    padding = zero3 * (_all(terms, "buffer_elements") - _all(terms, "parameters"))  # and each piece of it alone
    whole = _width(implementation) * (Max(_all(terms, "parameters"), _part(terms)) + 2 * padding)
    unreduced = (1 - zero2) * (1 - _fits(terms)) * _all_gradients(terms, implementation)
    return _fits(terms) * whole + unreduced + _reduced_at_a_time(terms, implementation)


_DEEPSPEED: Any = {"data_parallel": ("deepspeed",), "peak": ("saved",)}
_OWN_STEP: Any = {"data_parallel": ("deepspeed",), "peak": ("torch",)}
_FORWARD = ("after_forward", "loss_forward", "loss_backward")
_BACKWARD = ("head_backward", "layer_backward")

#: Name, title, moments, size and options of each.
SIZES: tuple[Any, ...] = (
    ("cut_gradients", "Rest of the gradients that the rank's part cuts, at most",
     (*_FORWARD, *_BACKWARD, "last_reduce", "optimizer_step"), _cut, _DEEPSPEED),
    ("lasting_bucket", "Bucket of gradients, kept", _FORWARD, _lasting_bucket, _DEEPSPEED),
    ("bucket", "Bucket of gradients", (*_BACKWARD, "last_reduce"), _bucket, _DEEPSPEED),
    ("stage3_bucket", "Bucket of gradients, kept", ("optimizer_step",), _stage3_bucket, _DEEPSPEED),
    ("whole_gradients", "Gradients that are not reduced yet", ("layer_backward",), _whole_gradients, _DEEPSPEED),
    ("new_gradients", "Gradients of a further micro-batch, at most", ("layer_backward", "last_reduce"), _new_gradients,
     _DEEPSPEED),
    ("full_bucket", "Copy of a full bucket", ("layer_backward",), _reduced_before_the_end, _DEEPSPEED),
    ("last_bucket", "Copy of the last bucket", ("last_reduce",), _reduced, _DEEPSPEED),
    ("gathered_ahead", "Gathered parameters, at most", (*_FORWARD, *_BACKWARD), gathered, _DEEPSPEED),
    ("viewed_experts", "Gathered experts of which views are saved", (*_FORWARD, *_BACKWARD), _viewed,
     {**_DEEPSPEED, "layers": ("experts",)}),
    ("part_copies", "fp32 copies of the gradients of the rank's part", ("optimizer_step",), _gradient_copies,
     {**_DEEPSPEED, "zero_offload": ("none",)}),
)

_PASSES = ("layer_gathered", *_FORWARD[1:])
_OF_LAYERS = (*_BACKWARD, "norm_backward", "embedding_backward")

#: The same of PyTorch's own step in stages 1 to 3.
OF_STEP: tuple[Any, ...] = (
    ("accumulated_gradients", "Gradients of earlier micro-batches",
     (*_FORWARD[1:], *_BACKWARD, "norm_backward", "embedding_backward"), _accumulated, _OWN_STEP),
    ("accumulated_part", "Gradients of earlier micro-batches", ("last_reduce",), _accumulated_part, _OWN_STEP),
    ("lasting_bucket", "Buckets of gradients, kept", (*_PASSES, "head_backward"), _lasting_bucket, _OWN_STEP),
    ("bucket", "Buckets of gradients", ("norm_backward", "layer_backward", "embedding_backward", "last_reduce"),
     _bucket, _OWN_STEP),
    ("made_before_norm", "Gradients of the head, beyond the moments of the final norm", ("norm_backward",),
     _made_with_the_first_gradient, _OWN_STEP),
    ("full_bucket", "Reduced between layers, at most", ("layer_backward", "embedding_backward"), _between_layers,
     _OWN_STEP),
    ("full_bucket_before", "Reduced before the layers, at most", ("norm_backward",), _before_layers, _OWN_STEP),
    ("passed_gradients", "Gradients that are not reduced yet, less what passed layers freed", ("layer_backward",),
     _passed, _OWN_STEP),
    ("embedding_gradients", "Gradients of the embedding, and all that are not reduced yet", ("embedding_backward",),
     _embedding, _OWN_STEP),
    ("last_bucket", "Copy of the last bucket, and what is left of gradients", ("last_reduce",), _in_the_end, _OWN_STEP),
    ("part_gradients", "Gradients of the rank's part, at most", ("optimizer_step",), _kept_gradients, _OWN_STEP),
    ("stage3_gradients", "Gradients of the rank's part, kept", (*_PASSES, *_OF_LAYERS, "last_reduce",
     "optimizer_step"), _kept_part, _OWN_STEP),
    ("stage3_bucket", "Bucket of gradients, kept", ("optimizer_step",), _stage3_bucket, _OWN_STEP),
    ("gathered_forward", "Last layer or final norm in a forward pass, with gathered parameters, at most",
     ("layer_gathered",), _in_forward_pass, _OWN_STEP),
    ("gathered_in_loss", "Gathered parameters, at most", _FORWARD[1:], _gathered_in_loss, _OWN_STEP),
    ("gathered_ahead", "Gathered parameters, at most", ("head_backward", "norm_backward", "embedding_backward"),
     _gathered_at_work, _OWN_STEP),
    ("gathered_in_layer", "Gathered parameters, at most", ("layer_backward",), _gathered_in_layer, _OWN_STEP),
    ("gathered_embedding", "Gathered embedding", ("last_reduce",), _gathered_embedding, _OWN_STEP),
    ("part_copies", "fp32 copies of the gradients of the rank's part", ("optimizer_step",), _gradient_copies,
     _OWN_STEP),
)
