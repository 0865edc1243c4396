"""Megatron-FSDP: gathered weights and unreduced gradients at the moments of a step.

As read in ``AllGatherPipeline`` and ``GradReducePipeline`` of megatron-core 0.16.1, and counted by running them.
Weights outside of the layers are gathered by the first forward pass and stay to the end of the step. A layer's are
gathered with those of as many layers ahead as have 500 million elements, and freed behind it. On a rank with the whole
model the forward pass of the head gathers the first layers once more, which the backward pass frees before it gathers
its own, but for those with which it would begin. Gradients of a bucket lie whole until they are reduced: 1000 million
elements wait for it, one bucket is added to them, and one is being filled. The backward pass frees a layer's
activations meanwhile, so that the most is alive at one of the first three layers, at the one with which the queue is
full, or at the one with which no more layers are left to gather. With saved tensors on the host those of one layer come
back for each that is freed, up to the one with which all are back. Where the first layers are recomputed, the most may
also be alive at the last of those that are not, or at the next one. FP8 weights are gathered as such; their transposed
copies, as GPUs before Blackwell need them, are those of one layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Eq, Expr, Ge, Integer, Le

from ...functions import CeilDiv, Iverson, Max, Min
from ...implementations import Implementation
from ...ledger import Place, Role
from ...parallel.data import sharing_ranks
from ...parallel.legality import fixed_values
from ...parallel.megatron_fsdp import bucket_size, queue_size
from ...parallel.pipeline import longest_chunk
from ...parameters import symbols
from ...terms import TermSet, product
from ..megatron_units import WIDE, Units, has, has_both, in_fp8, largest_matrix, queue, units
from ..pytorch.gathered import freed_with_a_layer
from ..recomputed import again, made_again

w, sbk, Lr, ol, rn, rfull, D, c = symbols("w sbk Lr ol rn rfull D c")
#: Switches of ZeRO, which one rank alone has no use for: nothing is gathered and nothing reduced.
zero2, zero3 = (switch * Iverson(Ge(D * c, 2)) for switch in symbols("zero2 zero3"))


def _whole_units(elements: Expr, unit: Expr) -> Expr:
    """Return how many units fit into so many elements."""
    return CeilDiv(elements + 1, unit) - 1


def _queued(parts: Units, limit: Expr, passed: Expr, joined: int) -> Expr:
    """Return the elements of layers that wait for their reduction, of so many; ``joined`` came after the last had left.

    Of the oldest the 16-bit bucket may wait without that of FP8, which leaves first.
    """
    fitting = _whole_units(limit, parts.layer)
    part = Iverson(Ge(passed, fitting + joined + 1)) * Iverson(Le(fitting * parts.layer + parts.wide, limit))
    return Min(passed, fitting + joined) * parts.layer + (0 if parts.narrow == 0 else part * parts.wide)


def _ahead(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the layers that are gathered ahead of one."""
    return CeilDiv(queue(terms) - 1, 2 * units(terms, implementation).layer)


def _outside(terms: TermSet, implementation: Implementation) -> Expr:
    return product(WIDE, zero3, units(terms, implementation).outside)


def _at_the_loss(terms: TermSet, implementation: Implementation) -> Expr:
    parts = units(terms, implementation)
    again = has_both(implementation) * Min(_ahead(terms, implementation), Lr) * parts.gathered
    return product(zero3, WIDE * parts.outside + again)


def _open(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the elements of a bucket that the head's gradient opens and the embedding's closes."""
    parts = units(terms, implementation)
    return (1 - parts.apart) * has_both(implementation) * parts.together


def _first_queued(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the elements of the bucket that is reduced before those of the layers: that of norm and head alone."""
    parts = units(terms, implementation)
    alone = 1 - (1 - parts.apart) * has(Place.FIRST, implementation)
    return has(Place.LAST, implementation) * alone * parts.last


def _behind_the_head(terms: TermSet, implementation: Implementation) -> Expr:
    """Return how many layers join the queue before the head's bucket leaves it."""
    layer, limit = units(terms, implementation).layer, queue(terms)
    head = _first_queued(terms, implementation)
    return Iverson(Le(head, limit)) * (_whole_units(Max(limit - head, Integer(0)), layer) + 1)


def _freed(terms: TermSet, implementation: Implementation, passed: Expr) -> Expr:
    """Return saved bytes that the backward pass of so many layers has freed, less those that came instead.

    These came from the host, or were made again of the layer at work, beyond what the row of recomputed layers has.
    """
    freed, choices = freed_with_a_layer(terms, implementation), implementation.choices
    if choices["recompute_method"] == "block":
        whole, kept = _kept_whole(choices), terms["layer.saved"].symbol
        counted, made = (product(rfull, size(terms, implementation, None, with_output=True))
                         for size in (again, made_again))
        return (Min(passed, whole) * kept + Max(passed - whole, Integer(0)) * freed
                + counted - Iverson(Ge(passed, whole)) * made)
    freed = passed * freed
    return freed - Min(passed, ol) * terms["layer.moved"].symbol if "layer.moved" in terms else freed


def _kept_whole(choices: Mapping[str, str]) -> Expr:
    """Return the layers behind those that are recomputed, whose backward passes come first."""
    return Max(Integer(0), longest_chunk(choices) - product(rfull, rn))


def _turns(terms: TermSet, choices: Mapping[str, str]) -> tuple[Expr, ...]:
    """Return after how many layers something else is freed with each: all is back from the host, or is recomputed."""
    if choices["recompute_method"] == "block":
        whole = _kept_whole(choices)
        return Min(whole, Lr - 1), Max(whole - 1, Integer(0))
    return (ol,) if "layer.moved" in terms else ()


def _dropped(ahead: Expr, implementation: Implementation) -> Expr:
    """Return layers that the backward pass of the last one would gather, had the head not gathered them before.

    It takes them to be there, and then frees what the head gathered. A recomputed layer frees that before it asks.
    """
    choices = implementation.choices
    recomputed = Iverson(Le(_kept_whole(choices), 0)) if choices["recompute_method"] == "block" else rfull
    twice = Iverson(Ge(Lr, ahead + 1)) * Max(Integer(0), 2 * ahead - Lr + 1)
    return (1 - recomputed) * has_both(implementation) * twice


def _freed_early(ahead: Expr, implementation: Implementation) -> Expr:
    """Return layers that are not there in the backward pass of the last but one, where the first stage is not all.

    The pass begins late there, in the last layer, and lets go of all that was gathered by then.
    """
    return _on_first(implementation) * Iverson(Ge(Lr, ahead + 2)) * Max(Integer(0), ahead - 1)


def _on_first(implementation: Implementation) -> Expr:
    return has(Place.FIRST, implementation) * (1 - has(Place.LAST, implementation))


def _of_units(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the most bytes in the backward pass of a layer, less the activations that are freed before it."""
    parts, limit = units(terms, implementation), queue(terms)
    layer = parts.layer
    ahead = _ahead(terms, implementation)
    head, opened = _first_queued(terms, implementation), _open(terms, implementation)
    last = Lr - 1
    full = _whole_units(limit, layer) + 1
    with_head = Min(_behind_the_head(terms, implementation), last)
    nothing_ahead = Max(last - ahead, Integer(0))

    def at(passed: Expr, queued: Expr) -> Expr:
        there = (Min(1 + ahead, Lr - passed) - Iverson(Le(passed, 0)) * _dropped(ahead, implementation)
                 - Iverson(Eq(passed, 1)) * _freed_early(ahead, implementation))
        return there * parts.gathered + w * (opened + queued + layer) - _freed(terms, implementation, passed)

    first = (Min(Integer(1), last), Min(1 + _on_first(implementation), last))
    turns = (*first, nothing_ahead, *_turns(terms, implementation.choices))
    more = () if parts.narrow == 0 else (Min(full + 1, last),)
    with_it = (Integer(0), with_head, *(Min(turn, with_head) for turn in turns))
    early = {place: head + place * layer for place in with_it}
    late = {place: _queued(parts, limit, place, 1) for place in (Min(full, last), *turns, *more)}
    return Max(*(at(place, queued) for queues in (early, late) for place, queued in queues.items()))


def _of_buckets(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the most bytes of unreduced gradients in the backward pass of a layer where weights are whole.

    Without overlap all gradients are one bucket, which its first gradient allocates. Else the queue is taken to be as
    full as it can be: beyond its limit by two buckets, of which each has at most one matrix more than closes it, and
    which may have parameters of the layers before.
    """
    whole = terms["stage.buffer_elements"].symbol
    last = Lr - 1
    most = Min(whole, _most_queued(terms, implementation, Integer(0)))
    layer = terms["layer.parameters"].symbol
    others = _first_queued(terms, implementation) + bucket_size() + largest_matrix(implementation)
    full = Min(_whole_units(Max(most - others, Integer(0)), layer), last)

    def at(passed: Expr) -> Expr:
        return w * Min(most, others + (passed + 1) * layer) - _freed(terms, implementation, passed)

    return sbk * w * whole + (1 - sbk) * Max(
        *map(at, (Integer(0), full, Min(full + 1, last), *_turns(terms, implementation.choices))))


def _most_queued(terms: TermSet, implementation: Implementation, filled: Expr) -> Expr:
    """Return the elements of a queue beyond its limit by a bucket, or with that of the head, and of one more bucket."""
    bucket = bucket_size() + largest_matrix(implementation)
    head = bucket_size() + has(Place.LAST, implementation) * units(terms, implementation).last
    return Max(queue_size(bucket_size()) + bucket, head) + Max(bucket, filled)


def _in_a_layer(terms: TermSet, implementation: Implementation) -> Expr:
    return (_outside(terms, implementation) + zero3 * (_of_units(terms, implementation) + in_fp8(terms))
            + zero2 * (1 - zero3) * _of_buckets(terms, implementation))


def _at_the_head(terms: TermSet, implementation: Implementation) -> Expr:
    opened = _open(terms, implementation) + _first_queued(terms, implementation)
    whole = sbk * terms["stage.buffer_elements"].symbol + (1 - sbk) * opened
    last = has(Place.LAST, implementation)
    return _at_the_loss(terms, implementation) + w * last * (zero3 * opened + zero2 * (1 - zero3) * whole)


def _at_the_embedding(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what the last reduction finds: the queue of layers, the embedding's bucket, and its reduced share."""
    parts, limit = units(terms, implementation), queue(terms)
    first, opened = has(Place.FIRST, implementation), _open(terms, implementation)
    joined = (1 - parts.apart) * has(Place.LAST, implementation)
    own = opened + first * (1 - joined) * parts.first
    shares = 1 + 1 / sharing_ranks(Role.OPTIMIZER, fixed_values(implementation), False)
    head = _first_queued(terms, implementation)

    def queued(joined: int, with_head: Expr) -> Expr:
        return with_head * (head + Lr * parts.layer) + (1 - with_head) * _queued(parts, limit, Lr, joined)

    filled = queued(1, Iverson(Le(Lr, _behind_the_head(terms, implementation))))
    reduced = queued(0, Iverson(Le(head + Lr * parts.layer, limit)))
    whole = terms["stage.buffer_elements"].symbol
    last_bucket = Max(bucket_size() + largest_matrix(implementation), first * parts.first)
    buckets = sbk * whole * shares + (1 - sbk) * (
        Min(whole, _most_queued(terms, implementation, first * parts.first)) + Min(whole, last_bucket) * (shares - 1))
    return _outside(terms, implementation) + w * (
        zero3 * Max(filled + own, reduced + own * shares) + zero2 * (1 - zero3) * buckets)


_FSDP: Any = {"data_parallel": ("megatron_fsdp",)}

#: Name, title, moments, size and options of each.
SIZES: tuple[Any, ...] = (
    ("gathered", "Gathered weights", ("after_forward", "stage_exchange"), _outside, _FSDP),
    ("gathered_last", "Gathered weights", ("loss_forward", "loss_backward"), _at_the_loss, _FSDP),
    ("unreduced_head", "Gathered weights and unreduced gradients", ("head_backward",), _at_the_head, _FSDP),
    ("unreduced_layers", "Gathered weights and unreduced gradients, less what is freed", ("layer_backward",),
     _in_a_layer, _FSDP),
    ("unreduced_embedding", "Gathered weights and unreduced gradients", ("embedding_backward",), _at_the_embedding,
     _FSDP),
)
