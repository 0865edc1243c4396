"""Time of pipeline rank r for one micro-batch, by what it goes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sympy import Expr, Gt, Integer

from ..functions import Iverson, Max
from ..implementations import Implementation
from ..ledger import Place
from ..parallel.pipeline import PARTS, chunks, counting_places, instances, recomputed_layers
from ..parallel.schedules import SCHEDULES
from ..parameters import symbols
from ..rates import BETWEEN, stream_time
from ..terms import TermSet, product, total
from .components import PASSES
from .copies import GRADIENTS, bytes_moved
from .data import trained_elements
from .layers import TRAFFIC

rfull, Lr = symbols("rfull Lr")

#: The place that says how often rank r has a block beside its layers.
_ENDS: dict[str, Place] = {"input": Place.FIRST, "output": Place.LAST, "prediction": Place.MTP}
#: Parts of a micro-batch's time.
MICROBATCH = ("forward_computing", "backward_computing", "launching", "recomputing", "accumulating",
              *(f"{group.name}_waiting" for group in BETWEEN), "copying", "sharding_waiting")


def add_stage(terms: TermSet, implementation: Implementation) -> None:
    """Add rank r's time per micro-batch: computing, recomputing, waiting for others, adding up gradients."""
    choices = implementation.choices
    kinds = counting_places(choices)
    counts = {block: instances(place, choices) for block, place in {**kinds, **_ENDS}.items()
              if f"{block}.forward_time" in terms}

    def summed(kind: str, blocks: Iterable[str] = counts) -> Expr:
        return total(*(
            product(counts[block], terms[f"{block}.{kind}"].symbol)
            for block in blocks if f"{block}.{kind}" in terms
        ))

    layers = [block for block in kinds if block in counts]

    def repeated(kind: str, of_modules: str, kept: str = "") -> Expr:
        whole = total(summed(kind, layers), product(Integer(-1), summed(kept, layers)))
        return total(product(rfull, _recomputed_share(choices), whole), product(1 - rfull, summed(of_modules)))

    terms.add("stage.forward_flops", summed("forward_flops"), "FLOP", "rank r: FLOPs of the forward pass")
    if summed("unneeded_flops") != 0:
        terms.add("stage.unneeded_flops", summed("unneeded_flops"), "FLOP",
                  "rank r: FLOPs of gradients of frozen weights, which nobody needs")
    for name, kind, unit, words in (
        ("repeated_flops", "forward_flops", "FLOP", "FLOPs of layers and modules that run once more"),
        ("recomputing", "forward_time", "s", "layers and modules that run once more"),
    ):
        part, kept = ("flops", "kept_flops") if unit == "FLOP" else ("time", "kept_computing")
        again = repeated(kind, f"repeated_{part}", kept)
        terms.add(f"stage.{name}", again, unit, f"rank r: {words}, of one micro-batch")
    for way in PASSES:
        terms.add(f"stage.{way}_computing", summed(f"{way}_computing"), "s",
                  f"rank r: computing of the {way} pass of one micro-batch")
    terms.add("stage.launching", total(*(summed(f"{way}_launching") for way in PASSES)), "s",
              "rank r: waiting for the host to launch kernels, of one micro-batch")
    for group in BETWEEN:
        for kind, unit, meaning in TRAFFIC:
            name = f"{group.name}_{kind}"
            forward = name.replace("repeated", "forward")
            exchanged = summed(name) if name == forward else repeated(forward, name)
            if exchanged != 0:
                terms.add(f"stage.{group.name}_{kind}", exchanged, unit,
                          f"rank r: {meaning} of one micro-batch, among {group.meaning}")
        waited = total(*(summed(f"{group.name}_{way}_waiting") for way in PASSES))
        if waited != 0:
            terms.add(f"stage.{group.name}_waiting", waited, "s",
                      f"rank r: waiting for {group.meaning}, of one micro-batch")
    summed_bytes = bytes_moved(GRADIENTS, choices, trained_elements(terms))
    terms.add("stage.accumulating", stream_time(summed_bytes), "s",
              "rank r: gradients of one micro-batch added to the sums, and copied to be reduced")
    if SCHEDULES[choices["schedule"]].weight_passes:
        terms.add("stage.weight_gradients", summed("weight_gradients"), "s",
                  "rank r: products for gradients of weights, of one micro-batch")


def _recomputed_share(choices: Mapping[str, str]) -> Expr:
    """Return the share of a stage's layers that full recompute runs once more."""
    if choices["recompute_method"] not in PARTS or choices["stages"] == "listed":  # parts of listed stages are refused
        return Integer(1)
    return recomputed_layers(choices) / (Lr if choices["stages"] == "even" else Max(Lr, Integer(1)))


def add_microbatch(terms: TermSet) -> None:
    """Add all work of rank r for one micro-batch."""
    parts = [f"stage.{part}" for part in MICROBATCH if f"stage.{part}" in terms]
    terms.add("stage.microbatch_time", total(*(terms[part].symbol for part in parts)), "s",
              "rank r: one micro-batch, forward and backward")


def add_chunks(terms: TermSet, choices: Mapping[str, str]) -> None:
    """Add rank r's time of a micro-batch with one of its chunks of layers.

    Its layers and the adding up of gradients are shared out to all chunks evenly; what stands before and behind all
    layers is in the first and in the last one.
    """
    count, known = chunks(choices), tuple(f"{way}_computing" for way in PASSES)
    known += tuple(f"{way}_launching" for way in PASSES)
    known += tuple(f"{group.name}_{way}_waiting" for group in BETWEEN for way in PASSES)
    ends = {block: product(instances(_ENDS[block], choices), total(*(
        terms[f"{block}.{kind}"].symbol for kind in known if f"{block}.{kind}" in terms)))
        for block in _ENDS if f"{block}.forward_time" in terms}
    whole = terms["stage.microbatch_time"].symbol
    before, behind = ends.pop("input"), total(*ends.values())
    between = terms.add("stage.middle_chunk", total(whole, *(product(Integer(-1), own) for own in (before, behind)))
                        / count, "s", "rank r: one micro-batch with any chunk of layers but the first and the last")
    others = total(product(total(count, Integer(-1)), between), product(Iverson(Gt(count, 1)), behind))
    terms.add("stage.first_chunk", total(whole, product(Integer(-1), others)), "s",
              "rank r: one micro-batch with its first chunk of layers, which may be all")
    terms.add("stage.last_chunk", total(between, behind), "s", "rank r: one micro-batch with its last chunk")
