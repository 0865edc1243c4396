"""Time of one layer, and of what only the ends of the model have, for one micro-batch on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sympy import Expr, Integer

from ..accounts.rows import components_of
from ..functions import Max
from ..implementations import Implementation
from ..ledger import Place
from ..parameters import symbols
from ..terms import TermSet, product, total
from ..work import Ranks
from .components import PASSES
from .groups import GROUP_BY_NAME

(tau,) = symbols("tau")
_NANO = Integer(10) ** 9

#: What a rank works through once for every micro-batch, with the places of its components.
BLOCKS: dict[str, tuple[str, tuple[Place, ...]]] = {
    "layer": ("one layer", (Place.LAYER, Place.DENSE)),
    "expert_layer": ("one layer with experts", (Place.LAYER, Place.EXPERTS)),
    "input": ("the embedding", (Place.FIRST,)),
    "output": ("final norm, head and loss", (Place.LAST,)),
    "prediction": ("one further prediction (MTP), beside its layer", (Place.MTP,)),
}


#: What ranks exchange, by kind, with its unit.
TRAFFIC = tuple(
    item for way in (*PASSES, "repeated", "hidden") for item in (
        (f"{way}_passes", "passes", f"passes over the ring, {way}"),
        (f"{way}_bytes", "bytes", f"bytes made whole, {way}"),
    )
)


def add_blocks(terms: TermSet, implementation: Implementation) -> None:
    """FLOPs, computing, recomputing and waiting of every block, and its passes as a whole."""
    for block, (words, places) in BLOCKS.items():
        names = [item.name for item in components_of(implementation) if item.place in places]
        if not any(f"{name}.forward_time" in terms for name in names):
            continue
        if block == "expert_layer" and implementation.choices["layers"] != "experts":
            continue
        sums = partial(_sum, terms, names)
        terms.add(f"{block}.forward_flops", sums("forward_flops"), "FLOP", f"{words}: FLOPs of the forward pass")
        terms.add(f"{block}.weight_gradients", sums("product_time"), "s",
                  f"{words}: products for gradients of weights, a part of the backward pass")
        kernels = terms.add(f"{block}.kernels", sums("kernels"), "kernels", f"{words}: kernels of the forward pass")
        launched = product(kernels, tau) / _NANO
        for way in PASSES:
            times = launched if way == "forward" else product(Integer(2), launched)
            terms.add(f"{block}.{way}_computing", Max(sums(f"{way}_time"), times), "s",
                      f"{words}: computing of the {way} pass, or launching its kernels if that takes longer")
        again = total(sums("repeated_time"), *(sums(f"{ranks.value}_repeated_time") for ranks in Ranks))
        if again != 0:
            terms.add(f"{block}.repeated_time", again, "s",
                      f"{words}: what recompute of its modules repeats, waiting for others included")
            terms.add(f"{block}.repeated_flops", sums("repeated_flops"), "FLOP", f"{words}: FLOPs of that")
        for ranks in Ranks:
            for kind, unit, meaning in TRAFFIC:
                exchanged = sums(f"{ranks.value}_{kind}")
                if exchanged != 0:
                    terms.add(f"{block}.{ranks.value}_{kind}", exchanged, unit,
                              f"{words}: {meaning}, among {GROUP_BY_NAME[ranks.value].meaning}")
            for way in PASSES:
                waited = sums(f"{ranks.value}_{way}_time")
                if waited != 0:
                    terms.add(f"{block}.{ranks.value}_{way}_waiting", waited, "s",
                              f"{words}: waiting for {ranks.value.replace('_', '-')}-parallel ranks, {way} pass")
        for way in PASSES:
            parts = [f"{block}.{way}_computing", *(f"{block}.{ranks.value}_{way}_waiting" for ranks in Ranks)]
            terms.add(f"{block}.{way}_time", total(*(terms[part].symbol for part in parts if part in terms)), "s",
                      f"{words}: the {way} pass")


def _sum(terms: TermSet, names: Sequence[str], kind: str) -> Expr:
    return total(*(terms[f"{name}.{kind}"].symbol for name in names if f"{name}.{kind}" in terms))
