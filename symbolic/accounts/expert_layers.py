"""Count layers with experts at work on a stage, what one kind of layers has freed, and what recompute leaves bound."""

from __future__ import annotations

from sympy import Eq, Expr, Gt, Integer

from ..expert_layers import experts_before
from ..functions import FloorDiv, Iverson, Max, Min
from ..implementations import Implementation
from ..ledger import Place
from ..parallel.pipeline import chunks, ends, further_layers, instances, is_one_chunk
from ..parameters import symbols
from ..terms import TermSet, product, total
from .predictions import of_all, predicts

r, ld, step, mtp, rfull, Lb, Lcf, Ldr, Ler = symbols("r ld step mtp rfull Lb Lcf Ldr Ler")


def at_work(implementation: Implementation) -> Expr:
    """1 if the stage has layers with experts, further predictions among them."""
    _, further = further_layers(implementation.choices)
    return Min(Integer(1), total(instances(Place.EXPERTS, implementation.choices), further))


def dense_at_work(implementation: Implementation) -> Expr:
    """1 if the stage has layers with a dense MLP."""
    return Min(Integer(1), Ldr) if implementation.choices["layers"] == "experts" else Integer(1)


def passed(terms: TermSet, implementation: Implementation) -> Expr:
    """Return what layers with experts have freed when the last dense layer of the stage goes backward.

    They are all where dense layers are before them. Of single ones between dense layers it is the one at the end of the
    stage or chunk, if it has experts. Of listed stages only the first kind is known. Recomputed ones free nothing: all
    but the last hold the gradient of their input besides (``bound_behind``). Where a dense layer predicts further
    tokens, it is the last of the model, and nothing is free.
    """
    choices = implementation.choices
    before = product(_all_at_end(implementation), Ler)
    at_end = product(Iverson(Eq(_dense_at_end(), 0)), Iverson(Gt(Lb + Lcf, ld)))
    _, further = further_layers(choices)
    between = product(Iverson(Gt(step, 1)), total(at_end, further))
    count, behind = before, _all_at_end(implementation)
    if choices["stages"] != "listed":
        count, behind = total(before, between), total(behind, Iverson(Gt(step, 1)))
    freed = product(1 - rfull, of_all(terms, "expert_layer", "saved", count, product(behind, further)))
    held = product(_all_at_end(implementation), _bound(terms, implementation), Max(Ler - 1, Integer(0)))
    return product(1 - predicts(Place.DENSE, implementation), total(freed, -held))


def bound_behind(terms: TermSet, implementation: Implementation) -> Expr:
    """Return gradients that recomputed layers with experts hold, behind the last such layer that goes backward.

    A dispatcher binds the weights of the last tokens, these the graph of the second forward pass, and the graph the
    layer's input and its gradient, until the next forward pass. The gradient that the layer at work gets is counted.
    Dense layers between them free as many inputs or more.
    """
    behind = Max(Ler / chunks(implementation.choices) - 2, Integer(0))
    return product(Iverson(Eq(step, 1)), _bound(terms, implementation), behind)


def bound_in_the_end(terms: TermSet, implementation: Implementation) -> Expr:
    """Return inputs and gradients that recomputed layers with experts hold in the optimizer step.

    The input of a stage that has not the first layer is counted as such.
    """
    first, _ = ends(implementation.choices)
    own = 1 - Iverson(Eq(r, first))
    return product(_bound(terms, implementation), 2 * Ler - product(own, first_has_experts(implementation)))


def bound_at_first(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the same when the embedding goes backward, of which the first layer's gradient is counted."""
    first, _ = ends(implementation.choices)
    held = 2 * Ler - first_has_experts(implementation)
    return product(Iverson(Eq(r, first)), _bound(terms, implementation), held)


def dense_behind(terms: TermSet, implementation: Implementation) -> Expr:
    """Return, with a minus, what dense layers do not hold, or not yet, when the last layer with experts is at work."""
    if implementation.choices["stages"] == "listed":
        return Integer(0)
    further, _ = further_layers(implementation.choices)
    behind = total(product(1 - predicts(Place.EXPERTS, implementation), _dense_at_end()), further)
    saved = product(1 - rfull, terms["layer.saved"].symbol)
    freed = total(saved, _bound(terms, implementation))
    return product(Integer(-1), at_work(implementation), behind, freed)


def _all_at_end(implementation: Implementation) -> Expr:
    """1 if all layers with experts are behind the dense ones."""
    return product(Iverson(Eq(step, 1)), is_one_chunk(implementation.choices))


def first_has_experts(implementation: Implementation) -> Expr:
    """1 if the first layer of the stage has experts."""
    if implementation.choices["stages"] == "listed":
        return Integer(0)
    return experts_before(Lb + 1) - experts_before(Lb)


def _bound(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the input of a layer that is recomputed from it alone, which is as large as its gradient."""
    if implementation.choices["recompute_method"] != "each" or "layer_input.saved" not in terms:
        return Integer(0)
    return product(rfull, terms["layer_input.saved"].symbol)


def _dense_at_end() -> Expr:
    """Count the dense layers behind the last one with experts; chunks beyond the first are of whole steps."""
    return Lb + Lcf - step * FloorDiv(Lb + Lcf, step)
