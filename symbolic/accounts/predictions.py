"""Layers of further predictions where they have options of their own: what they keep otherwise than other layers.

Megatron-Core leaves them in 16 bits beside FP4 (``MultiTokenPredictionLayer._proj_and_transformer_layer``).
"""

from __future__ import annotations

from sympy import Eq, Expr, Gt, Integer, Symbol

from ..functions import Iverson
from ..implementations import Implementation
from ..ledger import Lifetime, Place
from ..parallel.pipeline import counting_places, ends, further_layers, held
from ..parameters import symbols
from ..terms import TermSet, product, total

r, mtp, nl, rfull = symbols("r mtp nl rfull")

#: Start of the last part of the name of a term of such a layer.
PREDICTING = "predicting_"


def predicting(place: Place, implementation: Implementation) -> Expr:
    """Return how many of rank r's instances of a component in layers are in layers of further predictions."""
    dense, experts = further_layers(implementation.choices)
    return {Place.LAYER: dense + experts, Place.DENSE: dense, Place.EXPERTS: experts}.get(place, Integer(0))


def held_predicting(place: Place, implementation: Implementation) -> Expr:
    """Return how many of those hold saved tensors at the rank's peak."""
    return product(1 - rfull, nl, predicting(place, implementation))


def predicts(place: Place, implementation: Implementation) -> Expr:
    """1 if layers of further predictions have the component; they are the last of the stage, and have most beside them.

    The others are at work while nothing that layers of further predictions save is there.
    """
    if predicting(place, implementation) == 0:
        return Integer(0)
    return product(Iverson(Gt(mtp, 0)), Iverson(Eq(r, ends(implementation.choices)[1])))


def add_predicting(terms: TermSet, owner: str, kind: str, parts: list[Symbol], unit: str, meaning: str) -> None:
    """Add the sum over the parts of a layer as layers of further predictions have it, if it is another."""
    names = [terms.by_symbol[part].name.replace(f".{kind}", f".{PREDICTING}{kind}") for part in parts]
    if any(name in terms for name in names):
        sums = (terms[name].symbol if name in terms else part for name, part in zip(names, parts, strict=True))
        terms.add(f"{owner}.{PREDICTING}{kind}", total(*sums), unit, f"{meaning}, of further predictions")


def of_all(terms: TermSet, owner: str, kind: str, count: Expr, further: Expr) -> Expr:
    """Return the bytes of ``count`` layers, or parts of them, of which ``further`` predict further tokens."""
    plain, otherwise = terms[f"{owner}.{kind}"].symbol, f"{owner}.{PREDICTING}{kind}"
    if otherwise not in terms:
        return product(count, plain)
    return total(product(total(count, -further), plain), product(further, terms[otherwise].symbol))


def held_by_layers(terms: TermSet, implementation: Implementation) -> list[Expr]:
    """Return the saved tensors of all layers in flight on rank r, of each kind of layers."""
    return [
        of_all(terms, layer, "saved", held(place, Lifetime.IN_FLIGHT, implementation.choices),
               held_predicting(place, implementation))
        for layer, place in counting_places(implementation.choices).items() if f"{layer}.saved" in terms
    ]
