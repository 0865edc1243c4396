"""Sizes of what lives in nanotron at the end of a backward pass and after the optimizer step.

Read in ``optim/gradient_accumulator.py`` and ``optim/zero.py``.
"""

from __future__ import annotations

from typing import Any

from sympy import Eq, Expr, Integer

from ...dimension import ONE
from ...functions import Iverson, Max
from ...implementations import Implementation
from ...ledger import Lifetime, Place, Role
from ...orders.nanotron import IN_BUCKETS
from ...parallel.pipeline import held
from ...parameters import symbols
from ...terms import TermSet, product, total

D, zero1, nr, r, p, tied, Hc, Lr, rfull = symbols("D zero1 nr r p tied Hc Lr rfull")

_BF16 = Integer(2)


def kept_gradients(terms: TermSet, implementation: Implementation) -> Expr:
    """Return all bf16 gradients of a micro-batch, which go into the fp32 buffer when its backward pass has returned.

    DDP takes them over one by one, and finds that of the embedding last. A tied matrix on one stage has two until then.
    """
    matrix = product(Iverson(Eq(r, 0)), total(IN_BUCKETS, product(tied, Iverson(Eq(p, 1)))),
                     terms["embedding.parameters"].symbol)
    return product(_BF16, total(product(1 - IN_BUCKETS, terms["stage.parameters"].symbol), matrix))


def kept_of_later(terms: TermSet, implementation: Implementation) -> Expr:
    """Return gradients of head and later layers, at the layer where they outweigh what those layers have freed by most.

    Every layer adds its gradients and frees what it saved, so that is the last or the first layer at work.
    """
    last = Iverson(Eq(r, p - 1))
    heads = (terms[f"{name}.parameters"].symbol for name in ("final_norm", "head"))
    tied_alone = product(tied, Iverson(Eq(p, 1)), terms["embedding.parameters"].symbol)
    of_head = product(last, total(product(1 - IN_BUCKETS, total(*heads)), tied_alone))
    freed = total(product(1 - rfull, terms["layer.saved"].symbol), product(rfull, terms["layer_input.saved"].symbol))
    grown = total(product(_BF16, 1 - IN_BUCKETS, terms["layer.parameters"].symbol), -freed)
    return total(product(_BF16, of_head), product(Max(Lr - 1, Integer(0)), Max(grown, Integer(0))))


def others_in_flight(terms: TermSet, implementation: Implementation) -> Expr:
    """Return all saved activations but those of the layers of the micro-batch at work, freed by now."""
    layers = product(held(Place.DENSE, Lifetime.IN_FLIGHT, implementation.choices), terms["layer.saved"].symbol)
    inputs = product(Hc, terms["layer_input.saved"].symbol)
    return total(terms["stage.inner_activations"].symbol, -layers / nr, -inputs / nr)


def own_parts(terms: TermSet, implementation: Implementation) -> Expr:
    """Return parts of updated weights in ZeRO-1's gather: one of the rank's own and one for each rank.

    ``all_gather_coalesced`` joins the slices of all parameters in one flat tensor a rank.
    """
    return product(D + 1, _part(terms))


def whole_gathered(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the tensor of its own into which ``ProcessGroupNCCL::allgather`` gathers a list of tensors."""
    return product(D, _part(terms))


def _part(terms: TermSet) -> Expr:
    return product(zero1, Iverson(D > 1), _BF16, terms["stage.shard_elements"].symbol)


#: Name, title, moments, size, whether a walk through the step meets them anyway, tensors, and the role if another.
SIZES: tuple[Any, ...] = (
    ("kept_gradients", "bf16 gradients of a micro-batch", ("embedding_backward",), kept_gradients, True, ONE),
    ("kept_of_later", "bf16 gradients of later layers", ("layer_backward",), kept_of_later, True, ONE),
    ("others_in_flight", "Activations of waiting micro-batches", ("embedding_backward",), others_in_flight, True, ONE,
     Role.ACTIVATION),
    ("gathered_parts", "Parts of updated parameters", ("optimizer_step",), own_parts, False, D + 1),
    ("gathered_whole", "Gather of updated parameters", ("optimizer_step",), whole_gathered, False, ONE),
)
