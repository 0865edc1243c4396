"""Tensors that full recompute makes before the backward pass of a layer, or of a group of layers."""

from __future__ import annotations

from sympy import Expr, Integer

from ..choices import MEGATRON_PEAKS
from ..dimensions import BATCH, HIDDEN, SEQUENCE_SP
from ..functions import Max, Min
from ..implementations import Implementation
from ..ledger import Place
from ..parallel.pipeline import LAYERS, longest_chunk
from ..parameters import symbols
from ..terms import TermSet, product, total
from .expert_layers import dense_at_work
from .rows import kept_rows, local_shape

rfull, rn = symbols("rfull rn")

_FIRST_NORMS = ("attention_norm", "latent_norm")
_INPUTS = ("input", "input_layer_norm")


def input_is_saved(implementation: Implementation) -> bool:
    """Return True if a layer's first norm, or attention without one, saves the layer's input, which recompute keeps."""
    return implementation.choices["norms"] == "post" or any(
        row.component.name in _FIRST_NORMS and row.tensor.name in _INPUTS for row in kept_rows(implementation)
    )


def kept_of_a_layer(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the tensors that full recompute keeps of a layer and that count again as its saved tensors.

    Outputs of operations are taken for those that recompute would make; the input is what the first norm saves,
    if it saves that.
    """
    names = ["layer_input", "saved_ops"] if input_is_saved(implementation) else ["saved_ops"]
    return sum((terms[f"{name}.saved"].symbol for name in names if f"{name}.saved" in terms), Integer(0))


def recomputed_layer(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the saved tensors of the layer at work; those of both kinds of layers are never there together.

    With ``block`` the layers that are not recomputed are the last of a chunk: their backward passes are over by then.
    With ``uniform`` they are those of all layers of a group, of which only the first one's input is kept. Layers with
    experts have moments of their own where Megatron-Core's are counted.
    """
    choices = implementation.choices
    if choices["layers"] == "experts" and choices["peak"] in MEGATRON_PEAKS and choices["recompute_method"] == "each":
        dense = again(terms, implementation, Place.DENSE, with_output=True)
        return product(rfull, dense_at_work(implementation), dense)
    return product(rfull, again(terms, implementation, None, with_output=True))


def again(terms: TermSet, implementation: Implementation, place: Place | None, *, with_output: bool) -> Expr:
    """Return the saved tensors that are made again of a layer of ``place``, or of any kind, or of its group.

    With ``block`` those of layers whose backward passes are over by then are subtracted.
    """
    made = made_again(terms, implementation, place, with_output=with_output)
    if implementation.choices["recompute_method"] == "block":
        beyond = Max(Integer(0), longest_chunk(implementation.choices) - rn)
        made = Max(Integer(0), made - beyond * Min(*_kinds(terms)))
    return made


def made_again(terms: TermSet, implementation: Implementation, place: Place | None, *, with_output: bool) -> Expr:
    """Return all saved tensors that are made again of a layer of ``place``, or of any kind, or of its group."""
    kinds, method = _kinds(terms), implementation.choices["recompute_method"]
    alone = {Place.DENSE: kinds[0], Place.EXPERTS: kinds[-1]} if method != "uniform" else {}
    largest = alone[place] if place in alone else Max(*kinds)
    return total(product(rn if method == "uniform" else Integer(1), largest),
                 _output(implementation) if with_output else Integer(0), -kept_of_a_layer(terms, implementation))


def _kinds(terms: TermSet) -> list[Expr]:
    """Return the saved tensors of each kind of layer, without outputs of operations that only that kind keeps."""
    return [
        terms[f"{layer}.saved"].symbol - (terms[f"{kept}.saved"].symbol if f"{kept}.saved" in terms else 0)
        for layer, kept in zip(LAYERS, ("saved_ops_mlp", "saved_ops_experts", "saved_ops_mlp"), strict=True)
        if f"{layer}.saved" in terms
    ]


def _output(implementation: Implementation) -> Expr:
    """Return the output made again, which Megatron-Core's checkpoint holds until the backward pass is over."""
    if implementation.choices["peak"] not in MEGATRON_PEAKS:
        return Integer(0)
    return product(Integer(2), *local_shape((SEQUENCE_SP, BATCH, HIDDEN)))
