"""PyTorch's gradients: made by the backward pass, there for the optimizer step, and gone with it.

With several micro-batches to a step, the sums over the earlier ones exist at every moment. Where the backward pass
updates parameters itself, gradients live until their parameter or their unit of FSDP2 is updated.
"""

from __future__ import annotations

from typing import Any

from sympy import Expr, Ge, Integer

from ...choices import ENDS, TRANSFORMERS_ROUTERS
from ...dimensions import BATCH, HIDDEN, SEQUENCE, SEQUENCE_SP
from ...functions import Iverson, Max
from ...implementations import Implementation
from ...ledger import Place
from ...parallel.data import TIED, WIDE, are_apart, gradients_stay
from ...parameters import symbols
from ...terms import TermSet, product, total
from ..moments.frozen import largest_matrix
from ..rows import local_shape
from .gathered import (
    ACCUMULATED,
    ALTERNATING,
    COMPUTE,
    OWN_MEMORY,
    REDUCING,
    SHARDS,
    freed_with_a_layer,
    gradient_bytes,
    held_by_whole_layers,
    kinds_of_layers,
    outside,
    per_layer,
    reduced_ends,
    sum_of,
)

Lr, b, wstep = symbols("Lr b wstep")


def _accumulated(terms: TermSet, implementation: Implementation) -> Expr:
    return ACCUMULATED * terms["stage.gradient"].symbol


def _whole(terms: TermSet, implementation: Implementation) -> Expr:
    return terms["stage.gradient"].symbol


def _accumulated_shards(terms: TermSet, implementation: Implementation) -> Expr:
    return REDUCING * _accumulated(terms, implementation)


def _all_shards(terms: TermSet, implementation: Implementation) -> Expr:
    return REDUCING * _whole(terms, implementation)


def _made_by_the_head(terms: TermSet, implementation: Implementation) -> Expr:
    """Return elements of gradients of final norm and head, where a tied head is the embedding itself."""
    return outside(terms, implementation, "parameters", Place.LAST, Place.MTP) + tied_head(terms)


def tied_head(terms: TermSet) -> Expr:
    """Return elements of a head that is the embedding itself, unless both are frozen."""
    if "embedding.parameters" not in terms:
        return Integer(0)
    return product(TIED, terms["embedding.parameters"].symbol)


def _unreduced_head(terms: TermSet, implementation: Implementation) -> Expr:
    """Return gradients of final norm and head, which wait for the embedding's where all three are one unit."""
    joined = 1 - are_apart(implementation.choices)
    if joined == 0:
        return Integer(0)
    return COMPUTE * (joined * outside(terms, implementation, "parameters", Place.LAST, Place.MTP) + tied_head(terms))


def _made_before_the_norm(terms: TermSet, implementation: Implementation) -> Expr:
    """Return gradients of the head; where earlier micro-batches left some they are added, but a tied head's wait."""
    norm = terms["final_norm.parameters"].symbol if "final_norm.parameters" in terms else Integer(0)
    if implementation.choices["data_parallel"] == "fsdp":
        return COMPUTE * (_made_by_the_head(terms, implementation) - norm)
    own = outside(terms, implementation, "parameters", Place.LAST, Place.MTP) - norm
    return gradient_bytes(implementation.choices) * ((1 - ACCUMULATED) * own + tied_head(terms))


def _reduced_layers(terms: TermSet, implementation: Implementation) -> Expr:
    """Return gradients of all that has been reduced before the embedding's are made."""
    layers = total(*(product(number, sum_of(terms, layer, "aligned")) for layer, number in kinds_of_layers(terms)))
    elements = OWN_MEMORY * layers + reduced_ends(terms, implementation)
    made = Integer(gradients_stay(implementation.choices)) * gradient_bytes(implementation.choices) * elements / SHARDS
    return REDUCING * (ACCUMULATED * terms["stage.gradient"].symbol + made)


def _of_the_embedding(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the embedding's gradient; of a tied one it is added to the head's, of others the head's wait beside it."""
    embedding = COMPUTE * outside(terms, implementation, "parameters", Place.FIRST)
    waiting = _unreduced_head(terms, implementation)
    return embedding if waiting == 0 else embedding + waiting + _sum_of_both(terms, embedding)


def while_passing(
    terms: TermSet, implementation: Implementation, each: Expr | None = None, new: Expr = 1 - ACCUMULATED,
) -> tuple[Expr, ...]:
    """Return, for each kind of layers, gradients of head and passed layers, less their saved tensors; no sharding.

    Of a kind the first or the last that goes backward is the peak's. A tied head's gradient waits for the embedding's,
    to which it is added before those of earlier micro-batches. An element of a gradient has ``each`` bytes, or those
    that the optimizer gets; ``new`` is 1 where gradients stay as they are made, and 0 where they do not.
    """
    each = gradient_bytes(implementation.choices) if each is None else each
    passed = each * (new * outside(terms, implementation, "parameters", Place.LAST, Place.MTP) + tied_head(terms))
    moments, gone = [], held_by_whole_layers(implementation)
    for layer, number in kinds_of_layers(terms):
        made = each * sum_of(terms, layer, "parameters") + _more_of_routers(terms, layer)
        change = new * made - freed_with_a_layer(terms, implementation, layer)
        last_whole = ALTERNATING * Iverson(Ge(number, wstep)) * (number - wstep) * change
        at_whole = [] if gone == 0 else [last_whole]
        moments.append(passed + Max(Integer(0), *at_whole, (number - 1) * change - gone))
        passed += number * change
    return tuple(moments)


def _more_of_routers(terms: TermSet, layer: str) -> Expr:
    """Return the bytes of a layer's fp32 gradient of the router beyond those of all others."""
    name = f"router.{WIDE}gradient"
    return terms[name].symbol if layer == "expert_layer" and name in terms else Integer(0)


def _while_passing(terms: TermSet, implementation: Implementation) -> Expr:
    moment, = while_passing(terms, implementation)
    return moment


def _all_and_the_embedding(terms: TermSet, implementation: Implementation) -> Expr:
    """Without sharding: all gradients; beside them a tied head's, and new ones where earlier ones exist.

    That of a table of positions is made before, and frees the numbers of positions. A frozen embedding has none.
    """
    whole = terms["stage.gradient"].symbol
    if "embedding.parameters" not in terms:
        return whole
    each, names = gradient_bytes(implementation.choices), ("embedding", "position_embedding")
    embedding, *positions = (each * terms[f"{name}.parameters"].symbol for name in names
                             if f"{name}.parameters" in terms)
    last = (TIED + ACCUMULATED) * embedding + _sum_of_both(terms, embedding)
    if not positions:
        return whole + last
    before = ACCUMULATED * (positions[0] + TIED * embedding) - (1 - ACCUMULATED) * (1 - TIED) * embedding
    if implementation.choices["position_ids"] == "shared":  # their gradient is a sum over sequences
        before += product(Integer(2), Iverson(b > 1), *local_shape((SEQUENCE, HIDDEN)))
    return whole + Max(before, last - terms["stage.position_embedding.input"].symbol)


def _sum_of_both(terms: TermSet, gradient: Expr) -> Expr:
    """Autograd adds the gradients of a tied embedding in a third tensor, when that of the output is freed."""
    return TIED * Max(Integer(0), gradient - product(Integer(2), *local_shape((SEQUENCE_SP, BATCH, HIDDEN))))


def _of_the_head(terms: TermSet, implementation: Implementation) -> Expr:
    return gradient_bytes(implementation.choices) * largest_matrix(implementation, False)


def _of_a_matrix(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the largest matrix of a layer; the head's gradient waits for the embedding's where both are one."""
    waiting = TIED * largest_matrix(implementation, False)
    return gradient_bytes(implementation.choices) * (largest_matrix(implementation, True) + waiting)


def of_both_ends(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the gradient of the embedding; of a tied one also the head's, and their sum where it is more."""
    embedding = _of_the_head(terms, implementation)
    return (1 + TIED) * embedding + _sum_of_both(terms, embedding)


def _of_a_unit(terms: TermSet, implementation: Implementation) -> Expr:
    return gradient_bytes(implementation.choices) * per_layer(terms, "aligned") / SHARDS


def _of_the_first_unit(terms: TermSet, implementation: Implementation) -> Expr:
    """Return gradients of the embedding's unit, of which final norm and head may be a part."""
    joined = 1 - are_apart(implementation.choices)
    elements = (outside(terms, implementation, "aligned", Place.FIRST)
                + joined * outside(terms, implementation, "aligned", Place.LAST, Place.MTP))
    return gradient_bytes(implementation.choices) * elements / SHARDS


def _of_the_last_unit(terms: TermSet, implementation: Implementation) -> Expr:
    """Return gradients of final norm and head, if they are a unit."""
    elements = are_apart(implementation.choices) * outside(terms, implementation, "aligned", Place.LAST, Place.MTP)
    return gradient_bytes(implementation.choices) * elements / SHARDS


_AFTER: Any = {"peak": ("torch",), "optimizer_step": ("after",)}
_FSDP: Any = {"data_parallel": ("fsdp",), "pipeline": ("own",), "peak": ("torch",)}
_PLAIN: Any = {"data_parallel": ("ddp",), "precision": ("bf16", "autocast"), **_AFTER}
_FREED: Any = {"peak": ("saved",), "optimizer_step": ("backward",)}
_ONE: Any = {**_FREED, "data_parallel": ("ddp",)}
_UNIT: Any = {**_FREED, "data_parallel": ("fsdp",)}
_BEFORE = ("after_forward", "loss_forward", "loss_backward", "head_backward", "layer_backward")
_NORM = ("norm_backward",)
_TRAINED_HEAD: Any = {"adapters": ("none",)}

#: Name, title, moments, size and options of each; in how many pieces a step makes it, where not in one.
SIZES: tuple[Any, ...] = (
    ("accumulated_gradients", "Gradients of earlier micro-batches", (*_BEFORE, *_NORM, "backward_start"),
     _accumulated_shards, {**_FSDP, "units": ("root",)}),
    *(("accumulated_gradients", "Gradients of earlier micro-batches", (*_BEFORE, *sites, "head_reduce"),
       _accumulated_shards, {**_FSDP, "units": (units,)}) for units, sites in (("ends", _NORM), ("apart", ()))),
    ("accumulated_gradients", "Gradients of earlier micro-batches", (*_BEFORE, *_NORM), _accumulated, _PLAIN, Lr),
    ("head_gradients", "Gradients of final norm and head, not yet reduced", ("layer_backward",), _unreduced_head,
     {**_FSDP, "units": ("root", "ends"), **_TRAINED_HEAD}),
    *(("made_before_norm", "Gradients of the head, not yet added or reduced", _NORM, _made_before_the_norm,
       {**kind, **_TRAINED_HEAD}) for kind in ({**_FSDP, "router": TRANSFORMERS_ROUTERS}, _PLAIN)),
    ("reduced_gradients", "Reduced gradients", ("embedding_backward", "last_reduce"), _reduced_layers,
     {**_FSDP, **_AFTER}),
    ("embedding_gradients", "Gradients outside of the layers", ("embedding_backward",), _of_the_embedding, _FSDP),
    ("passed_gradients", "Gradients of the layers passed, less what is freed", ("layer_backward",), _while_passing,
     {**_PLAIN, "layers": ("dense",)}, Lr),
    ("all_gradients", "Gradients", ("embedding_backward",), _all_and_the_embedding, _PLAIN, Lr),
    ("kept_gradients", "Gradients", ("optimizer_step",), _all_shards, {"data_parallel": ("fsdp",), **_AFTER}),
    ("kept_gradients", "Gradients", ("optimizer_step",), _whole, _PLAIN, Lr),
    ("one_gradient", "Gradient of the parameter that is updated", ("head_backward",), _of_the_head, _ONE),
    ("one_gradient", "Gradient of the parameter that is updated", ("layer_backward",), _of_a_matrix, _ONE),
    ("one_gradient", "Gradient of the parameter that is updated", ("embedding_backward",), of_both_ends, _ONE),
    ("unit_gradients", "Gradients of the unit that is updated", ("layer_backward",), _of_a_unit, _UNIT),
    ("unit_gradients", "Gradients of the unit that is updated", ("last_reduce",), _of_the_first_unit, _UNIT),
    ("unit_gradients", "Gradients of the unit that is updated", ("head_backward",), _of_the_last_unit,
     {**_UNIT, "units": ENDS}),
)
