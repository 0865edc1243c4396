"""Time of one layer, and of what only the ends of the model have, for one micro-batch on one rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sympy import Expr, Gt, Integer

from ..accounts.rows import components_of, local_shape
from ..dimensions import EXPERTS
from ..functions import Iverson, Max
from ..implementations import Implementation
from ..ledger import Place
from ..parallel.pipeline import layer_kinds
from ..parameters import symbols
from ..rates import BETWEEN, beside_computing
from ..systems.combined_passes import are_combined
from ..terms import TermSet, product, term_symbol, total
from .components import PASSES

t, gap, tau, of_expert, stall, oe = symbols("t gap tau th st oe")
_NANO = Integer(10) ** 9

#: Work of a rank once per micro-batch beside that of its layers, with the places of its components.
_ENDS: dict[str, tuple[str, tuple[Place, ...]]] = {
    "input": ("the embedding", (Place.FIRST,)),
    "output": ("final norm, head and loss", (Place.LAST,)),
    "prediction": ("one further prediction (MTP), beside its layer", (Place.MTP,)),
}


#: Recipes of FP8 with which Transformer Engine quantises the tokens of one expert after the other.
ONE_BY_ONE = ("current", "block", "mx")
#: Groups whose traffic may go on beside computing of another micro-batch.
_TO_EXPERTS = ("expert", "expert_all")
#: Kernels of a layer that no row names: copies, views that are made contiguous, counters, casts.
UNNAMED = Integer(36)
#: Traffic of ranks by kind, with its unit.
TRAFFIC = tuple(
    item for way in (*PASSES, "repeated", "hidden") for item in (
        (f"{way}_passes", "passes", f"passes over the ring, {way}"),
        (f"{way}_bytes", "bytes", f"bytes made whole, {way}"),
    )
)


def add_blocks(terms: TermSet, implementation: Implementation) -> None:
    """Add the FLOPs, computing, recomputing and waiting of every block, and its passes as a whole."""
    layers = {kind: (f"one {words}", places) for kind, (words, places) in layer_kinds(implementation.choices).items()}
    for block, (words, places) in {**layers, **_ENDS}.items():
        names = [item.name for item in components_of(implementation) if item.place in places]
        if not any(f"{name}.forward_time" in terms for name in names):
            continue
        sums = partial(_sum, terms, names)
        terms.add(f"{block}.forward_flops", sums("forward_flops"), "FLOP", f"{words}: FLOPs of the forward pass")
        if sums("unneeded_flops") != 0:
            terms.add(f"{block}.unneeded_flops", sums("unneeded_flops"), "FLOP",
                      f"{words}: FLOPs of gradients of frozen weights, which nobody needs")
        terms.add(f"{block}.weight_gradients", sums("product_time"), "s",
                  f"{words}: products for gradients of weights, a part of the backward pass")
        if implementation.choices["recompute_saves"] == "ops" and block in layers:
            products, core = sums("product_time"), sums("core_time")
            terms.add(f"{block}.kept_computing", total(products / 2, core), "s",
                      f"{words}: products whose outputs full recompute keeps: every second one, and core attention")
            terms.add(f"{block}.kept_flops", total(terms[f"{block}.forward_flops"].symbol, sums("core_flops")) / 2,
                      "FLOP", f"{words}: FLOPs of those")
        unnamed = UNNAMED if block in layers else Integer(0)
        terms.add(f"{block}.kernels", total(sums("kernels"), unnamed), "kernels", f"{words}: kernels of a pass")
        again = total(sums("repeated_time"), *(sums(f"{group.name}_repeated_time") for group in BETWEEN))
        if again != 0:
            terms.add(f"{block}.repeated_time", again, "s",
                      f"{words}: what recompute of its modules repeats, waiting for others included")
            terms.add(f"{block}.repeated_flops", sums("repeated_flops"), "FLOP", f"{words}: FLOPs of that")
        for group in BETWEEN:
            for kind, unit, meaning in TRAFFIC:
                exchanged = sums(f"{group.name}_{kind}")
                if exchanged != 0:
                    terms.add(f"{block}.{group.name}_{kind}", exchanged, unit,
                              f"{words}: {meaning}, among {group.meaning}")
        kernels = terms[f"{block}.kernels"].symbol
        for way in PASSES:
            terms.add(f"{block}.{way}_computing", total(sums(f"{way}_time"), product(kernels, gap) / _NANO), "s",
                      f"{words}: computing of the {way} pass, with gaps between kernels")
        launched = product(kernels, tau)
        if block == "expert_layer" and implementation.choices["fp8"] in ONE_BY_ONE:
            (experts,) = local_shape((EXPERTS,), implementation.choices)
            launched = total(launched, product(experts, of_expert))
        for way in PASSES:
            _add_pass(terms, block, words, sums, way, launched, are_combined(implementation.choices))


def _add_pass(
    terms: TermSet, block: str, words: str, sums: Callable[[str], Expr], way: str, launched: Expr, combined: bool,
) -> None:
    """Add a pass of a block: waiting, and launches that the host delays, beside its computing.

    Tokens may go to experts and back beside another micro-batch, which is in its other pass then, and do so where both
    passes are ``combined``. The host has ``launched`` after so many nanoseconds.
    """
    other, overlap = PASSES[way == PASSES[0]], Integer(1) if combined else oe
    parts: list[Expr] = [terms[f"{block}.{way}_computing"].symbol]
    for group in BETWEEN:
        waited = sums(f"{group.name}_{way}_time")
        if waited != 0:
            if group.name in _TO_EXPERTS:
                beside = beside_computing(waited, terms[f"{block}.{other}_computing"].symbol)
                waited = total(product(1 - overlap, waited), product(overlap, beside))
            parts.append(terms.add(f"{block}.{group.name}_{way}_waiting", waited, "s",
                                   f"{words}: waiting for {group.meaning}, {way} pass"))
    passes = [sums(f"tensor_{kind}_passes") for kind in ((way, "hidden") if way == "backward" else (way,))]
    stalled = product(Iverson(Gt(term_symbol("pipeline.borders"), 0)), total(*passes), t - 1, stall)
    late = total(launched, stalled) / _NANO
    parts.append(terms.add(f"{block}.{way}_launching", Max(Integer(0), late - total(*parts)), "s",
                           f"{words}: waiting for the host to launch kernels, {way} pass"))
    terms.add(f"{block}.{way}_time", total(*parts), "s", f"{words}: the {way} pass")


def _sum(terms: TermSet, names: Sequence[str], kind: str) -> Expr:
    return total(*(terms[f"{name}.{kind}"].symbol for name in names if f"{name}.{kind}" in terms))
