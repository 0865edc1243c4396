"""Pipeline parallelism by rank: layers of a stage, what it holds at its peak, and what only the ends hold."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Eq, Expr, Integer, Symbol

from ..expert_layers import experts_before
from ..functions import CeilDiv, FloorDiv, Iverson, Max, Min
from ..ledger import IN_LAYER, Lifetime, Place
from ..parameters import symbols
from ..systems import SYSTEMS
from .schedules import SCHEDULES

L, p, r, V, Lr, nr, nf, nl, ns = symbols("L p r V Lr nr nf nl ns")
Ldr, Ler, Hd, He, Hc, ld, step, mtp = symbols("Ldr Ler Hd He Hc ld step mtp")
Lf, Ll, Lx, Ly, Lz, eemb, eloss, rfull, rn = symbols("Lf Ll Lx Ly Lz eemb eloss rfull rn")
Lfe, Lle, Lxe, Lye, Lze = symbols("Lfe Lle Lxe Lye Lze")
Lm, Lc, Lcf, Lb, Lw, wstep = symbols("Lm Lc Lcf Lb Lw wstep")

#: Methods of full recompute that run a part of a chunk's layers once more.
PARTS = ("block", "every")
#: Contents of a stage, given by an explicit list of layers instead of a formula.
LISTED = (Lr, Lx, Ly, Lz, Lfe, Lle, Lxe, Lye, Lze, nr, nf, nl, ns, Ldr, Ler, Hd, He, Hc)
#: Stages of such a list that can take longest, each with its rank, its layers and those of them with experts. Between
#: first and last no other one has as many layers of both kinds.
LONGEST: dict[str, tuple[Expr, Symbol, Symbol]] = {
    "foremost": (Integer(0), Lf, Lfe), "hindmost": (p - 1, Ll, Lle),
    **{name: (Min(1, p - 1), *letters) for name, letters in {
        "longest": (Lx, Lxe), "second_longest": (Ly, Lye), "third_longest": (Lz, Lze)}.items()},
}
#: Those that only layers of two kinds can have.
OF_TWO_KINDS = ("second_longest", "third_longest")

#: Kinds of layers, as the first part of the names of their terms says.
LAYERS = ("layer", "expert_layer", "whole_layer")

#: Layers of a stage that is neither first nor last where those two have numbers of their own.
MIDDLE_LAYERS = (L + eemb + eloss - Lf - Ll) / Max(p - Iverson(Lf > 0) - Iverson(Ll > 0), Integer(1))


def definitions(choices: Mapping[str, str], framework: str) -> dict[str, Expr]:
    """Return the derived symbols of the pipeline, in computing order, for these choices.

    ``framework`` says how many micro-batches pass a chunk in a row where the schedule leaves it open. With an
    explicit list of layers it is the only one: a walk through the schedule gives the values of the others.
    """
    schedule = SCHEDULES[choices["schedule"]]
    formulas: dict[str, Expr] = {}
    if schedule.grouped:
        formulas["Gr"] = schedule.groups.get(framework, next(iter(schedule.groups.values())))
    if choices["stages"] == "listed":
        return formulas | _windowed_layers(choices)
    if choices["stages"] == "uneven":
        formulas["Lm"] = MIDDLE_LAYERS
    formulas["Lr"] = _stage_layers(choices)
    if _has_named_chunks(choices):
        formulas["Lc"] = _chunk_layers(choices)
    first = schedule.in_flight_first
    if has_lighter_chunks(choices):
        first = Iverson(Eq(eemb, 0)) * first + Iverson(Eq(eemb, 1)) * schedule.least_first
    formulas |= {"nr": schedule.in_flight, "nf": first, "nl": schedule.in_flight_last, "ns": schedule.in_flight_loss}
    for system in SYSTEMS:
        formulas |= system.in_flight(choices)
    if choices["layers"] == "experts":
        formulas |= _expert_layers(choices)
    else:
        formulas["Ldr"] = Lr
    return formulas | _windowed_layers(choices) | _held(choices)


def chunks(choices: Mapping[str, str]) -> Expr:
    """Return chunks of layers per rank: as many as the schedule is made for, or V."""
    own = SCHEDULES[choices["schedule"]].chunks
    return V if own is None else Integer(own)


def is_one_chunk(choices: Mapping[str, str]) -> Expr:
    """1 if a rank has a single chunk."""
    count = chunks(choices)
    return Integer(1) if count == 1 else Iverson(Eq(count, 1))


def has_lighter_chunks(choices: Mapping[str, str]) -> bool:
    """Return True where one of several chunks of a rank may have a layer less than the others.

    Megatron-Core takes the layer that stands for the embedding from the first chunk of the first rank, and the one
    that stands for the loss from the last chunk of the last rank.
    """
    return choices["stages"] == "uneven" and chunks(choices) != 1


def lighter_chunks(choices: Mapping[str, str]) -> tuple[Expr, Expr]:
    """1 or 0: the first chunk of rank r has a layer less than the others, and the last chunk."""
    if not has_lighter_chunks(choices):
        return Integer(0), Integer(0)
    several = Iverson(p > 1)
    return eemb * Iverson(Eq(r, 0)) * several, eloss * Iverson(Eq(r, p - 1)) * several


def chunk_layers(choices: Mapping[str, str]) -> Expr:
    """Return layers of a chunk of rank r, of those that have no layer less."""
    return Lc if _has_named_chunks(choices) else _chunk_layers(choices)


def _has_named_chunks(choices: Mapping[str, str]) -> bool:
    """Return True where many formulas have the layers of a chunk, which then are a symbol of their own."""
    mixed = choices["layers"] == "experts" and choices["stages"] != "listed"
    return has_lighter_chunks(choices) or (mixed and chunks(choices) != 1)


def _chunk_layers(choices: Mapping[str, str]) -> Expr:
    return (Lr + sum(lighter_chunks(choices), Integer(0))) / chunks(choices)


def longest_chunk(choices: Mapping[str, str]) -> Expr:
    """Return layers of the longest chunk of rank r."""
    if not has_lighter_chunks(choices):
        return chunk_layers(choices)
    return chunk_layers(choices) - Iverson(Eq(V, 1)) * sum(lighter_chunks(choices), Integer(0))


def ends(choices: Mapping[str, str]) -> tuple[Expr, Expr]:
    """Return the ranks that hold the first and the last stage of the model."""
    schedule = SCHEDULES[choices["schedule"]]
    return schedule.first_rank, schedule.last_rank


def instances(place: Place, choices: Mapping[str, str]) -> Expr:
    """Return how many instances of a component rank r holds."""
    first, last = ends(choices)
    return {
        Place.LAYER: Ldr + Ler if choices["layers"] == "experts" else Ldr,
        Place.DENSE: Ldr,
        Place.EXPERTS: Ler,
        Place.WINDOWED: Lw,
        Place.WHOLE: Lr - Lw,
        Place.STAGE: Integer(1),
        Place.FIRST: Iverson(Eq(r, first)),
        Place.LAST: Iverson(Eq(r, last)),
        Place.MTP: mtp * Iverson(Eq(r, last)),
    }[place]


def layer_kinds(choices: Mapping[str, str]) -> Mapping[str, tuple[str, tuple[Place, ...]]]:
    """Return the kinds of layers: what each is in words, and the places in it, of which the last one counts them."""
    every = (Place.LAYER, Place.DENSE)
    if choices["heads"] == "two_widths":
        return {"layer": ("layer with a window", (*every, Place.WINDOWED)),
                "whole_layer": ("layer without a window", (*every, Place.WHOLE))}
    kinds = {"layer": ("layer", every)}
    if choices["layers"] == "experts":
        kinds["expert_layer"] = ("layer with experts", (Place.LAYER, Place.EXPERTS))
    return kinds


def counting_places(choices: Mapping[str, str]) -> dict[str, Place]:
    """Return for each kind of layers the place whose instances are their number."""
    return {kind: places[-1] for kind, (_, places) in layer_kinds(choices).items()}


def further_layers(choices: Mapping[str, str]) -> tuple[Expr, Expr]:
    """Return how many layers of further predictions rank r holds, with a dense MLP and with experts."""
    return _further(instances(Place.MTP, choices), choices)


def _further(count: Expr, choices: Mapping[str, str]) -> tuple[Expr, Expr]:
    return (count, Integer(0)) if choices["predictions"] == "dense" else (Integer(0), count)


def held(place: Place, lifetime: Lifetime, choices: Mapping[str, str], loss: bool = False) -> Expr:
    """Return how many instances of a tensor of a component exist on rank r at its peak.

    The loss frees its own with the backward pass of inputs, the head (and all else) with that of weights.
    """
    copies = {
        Place.LAYER: Hd + He if choices["layers"] == "experts" else Hd,
        Place.DENSE: Hd,
        Place.EXPERTS: He,
        **{kind: (1 - rfull) * nr * instances(kind, choices) for kind in (Place.WINDOWED, Place.WHOLE)},
        Place.FIRST: nf * instances(Place.FIRST, choices),
        Place.LAST: (ns if loss else nl) * instances(Place.LAST, choices),
        Place.MTP: nl * instances(Place.MTP, choices),
    }
    if lifetime is Lifetime.SHARED and place in IN_LAYER:  # a stage may have layers of one kind only
        return Min(Integer(1), instances(place, choices)) if choices["layers"] == "experts" else Integer(1)
    if lifetime is Lifetime.SHARED:
        return instances(place, choices)
    if lifetime is Lifetime.ONCE and place not in {Place.LAST, Place.MTP}:
        return instances(place, choices)
    return copies[place]


def held_inputs(place: Place, choices: Mapping[str, str]) -> Expr:
    """Return how many inputs of recomputed layers of a kind rank r holds at its peak."""
    if choices["layers"] != "experts" or place is Place.LAYER:
        return Hc
    further, _ = further_layers(choices)
    dense = rfull * (nr * (Ldr - further) / chunks(choices) + nl * further)
    return dense if place is Place.DENSE else Hc - dense


def whole_model(choices: Mapping[str, str]) -> dict[Symbol, Expr]:
    """Return values of letters with which rank r is the only stage and holds all layers of the model."""
    whole = {p: Integer(1), r: Integer(0), V: Integer(1)}
    if choices["stages"] != "listed":
        return whole
    experts = experts_before(L) if choices["layers"] == "experts" else Integer(0)
    dense, more = _further(mtp, choices)
    return {**whole, Lr: L, Ldr: L - experts + dense, Ler: experts + more}


def longest_listed(choices: Mapping[str, str]) -> dict[str, dict[Expr, Expr]]:
    """Return the stages of an explicit list that can take longest, with what is known of each, by name."""
    if choices["layers"] != "experts":
        return {name: {r: rank, Lr: layers, Ldr: layers} for name, (rank, layers, _) in LONGEST.items()
                if name not in OF_TWO_KINDS}
    last, longest = ends(choices)[1], {}
    for name, (rank, layers, experts) in LONGEST.items():
        dense, more = _further(mtp * int(rank == last), choices)
        longest[name] = {r: rank, Lr: layers, Ldr: layers - experts + dense, Ler: experts + more}
    return longest


def layers_by_chunk(choices: Mapping[str, str]) -> tuple[tuple[Expr, Expr], ...]:
    """Return layers with a dense MLP and with experts, of three chunks of rank r: the first, any between, and the last.

    The first is the only one where there is one; of listed chunks all are taken to be alike.
    """
    count, (dense, further) = chunks(choices), further_layers(choices)
    if choices["stages"] == "listed":
        experts = (Ler - further) / count if choices["layers"] == "experts" else Integer(0)
        return (((Ldr - dense) / count, experts),) * 3
    if choices["layers"] != "experts" and not has_lighter_chunks(choices):
        return ((Ldr / count, Integer(0)),) * 3
    chunk, (less_first, less_last) = chunk_layers(choices), lighter_chunks(choices)
    several = Integer(0) if count == 1 else Iverson(V > 1)
    if choices["layers"] != "experts":
        sizes = (chunk - less_first - (1 - several) * less_last, chunk, chunk - less_last)
        return tuple((size, Integer(0)) for size in sizes)
    sizes = (Lcf, chunk, chunk - less_last)
    beyond = ((count - 1) * chunk - several * less_last) / step
    experts_of = (Ler - further - beyond, sizes[1] / step, sizes[2] / step)
    return tuple((size - own, own) for size, own in zip(sizes, experts_of, strict=True))


def _stage_layers(choices: Mapping[str, str]) -> Expr:
    if choices["stages"] == "even":
        return L / p
    at_first = Iverson(Lf > 0) * Lf + Iverson(Eq(Lf, 0)) * (Lm - eemb)
    at_last = Iverson(Ll > 0) * Ll + Iverson(Eq(Ll, 0)) * (Lm - eloss)
    first, last = Iverson(Eq(r, 0)), Iverson(Eq(r, p - 1))
    alone = Iverson(Eq(p, 1))
    return alone * L + (1 - alone) * (
        first * at_first + last * at_last + (1 - first) * (1 - last) * Lm
    )


def _expert_layers(choices: Mapping[str, str]) -> dict[str, Expr]:
    """Return layers of both kinds; only the first chunk of a rank may have layers before the first with experts."""
    chunk, start = chunk_layers(choices), _layers_before(choices)
    first, last = lighter_chunks(choices)
    several = Integer(0) if chunks(choices) == 1 else Iverson(V > 1)
    in_first_chunk = experts_before(Lb + Lcf) - experts_before(Lb)
    beyond = ((chunks(choices) - 1) * chunk - several * last) / step
    dense, further = further_layers(choices)
    return {
        "Lb": start, "Lcf": chunk - first - (1 - several) * last,
        "Ler": in_first_chunk + beyond + further, "Ldr": Lr - (Ler - further) + dense,
    }


def _layers_before(choices: Mapping[str, str]) -> Expr:
    """Return layers of the model before the first chunk of rank r."""
    if choices["stages"] != "uneven":
        return r * chunk_layers(choices)
    first_layers = Iverson(Lf > 0) * Lf + Iverson(Eq(Lf, 0)) * Lm
    return Iverson(r > 0) * ((first_layers + (r - 1) * Lm) / chunks(choices) - eemb)


def _windowed_before(layer: Expr) -> Expr:
    """Count the layers with windows among the first ``layer`` ones."""
    return layer - Iverson(wstep > 0) * FloorDiv(layer, Max(wstep, Integer(1)))


def _windowed_layers(choices: Mapping[str, str]) -> dict[str, Expr]:
    """Return rank r's layers with windows; for several chunks or listed stages, the model's share."""
    if choices["window"] == "none":
        return {}
    if choices["stages"] == "listed" or chunks(choices) != 1:
        return {"Lw": _windowed_before(L) * Lr / L}
    start = _layers_before(choices)
    return {"Lw": _windowed_before(start + Lr) - _windowed_before(start)}


def dense_stages() -> Expr:
    """Return how many stages at the beginning have dense layers before the first with experts, at least one."""
    shared = L + eemb + eloss - Lf - Ll
    others = Max(p - Iverson(Lf > 0) - Iverson(Ll > 0), Integer(1))
    on_first = Iverson(Lf > 0) * Lf * others + Iverson(Eq(Lf, 0)) * (shared - eemb * others)
    return 1 + CeilDiv(Max(ld * others - on_first, Integer(0)), Max(shared, Integer(1)))


def experts_among(start: int, stop: int, first_dense_layers: int, moe_layer_step: int) -> int:
    """Return how many of the layers ``start`` to ``stop - 1`` of a model have experts."""
    known = {ld: Integer(first_dense_layers), step: Integer(moe_layer_step)}
    before_start, before_stop = (experts_before(Integer(layer)).xreplace(known) for layer in (start, stop))
    return int(before_stop - before_start)


def recomputed_layers(choices: Mapping[str, str]) -> Expr:
    """Return layers of rank r that full recompute runs once more."""
    again, _ = _recomputed(choices)
    fewer, _ = _recomputed_less(choices)
    return again - sum(lighter_chunks(choices), Integer(0)) * fewer


def missing(choices: Mapping[str, str]) -> tuple[Expr, Expr]:
    """Layers, and inputs of layers, that a chunk with a layer less does not hold for one micro-batch."""
    fewer, inputs = _recomputed_less(choices)
    return 1 - rfull * fewer, rfull * inputs


def _recomputed(choices: Mapping[str, str]) -> tuple[Expr, Expr]:
    """Return rank r's recomputed layers and the inputs that they keep, if no chunk had a layer less."""
    count, chunk = chunks(choices), chunk_layers(choices)
    layers = Lr + sum(lighter_chunks(choices), Integer(0))
    return {
        "each": (layers, layers),
        "uniform": (layers, count * CeilDiv(chunk, rn)),
        "block": (count * Min(rn, chunk),) * 2,
        "every": (FloorDiv(Lr, rn),) * 2,
    }[choices["recompute_method"]]


def _recomputed_less(choices: Mapping[str, str]) -> tuple[Expr, Expr]:
    """Return the same of a chunk with a layer less: how many fewer than of the others."""
    chunk = chunk_layers(choices)
    inputs = {
        "each": Integer(1),
        "uniform": CeilDiv(chunk, rn) - CeilDiv(chunk - 1, rn),
        "block": Min(rn, chunk) - Min(rn, chunk - 1),
        "every": Integer(0),
    }[choices["recompute_method"]]
    return inputs if choices["recompute_method"] == "block" else Integer(1), inputs


def _held(choices: Mapping[str, str]) -> dict[str, Expr]:
    """Layers times micro-batches held at the peak, by kind, and kept inputs of recomputed layers.

    The chunks of a rank are alike (a rule of legality sees to it), so any of them may be in flight; of those with a
    layer less as many are as ``in_flight_first`` and ``in_flight_last`` say.
    """
    chunk_count = chunks(choices)
    again, inputs = _recomputed(choices)
    first, last = lighter_chunks(choices)
    layers, lighter = Lr + first + last, first * nf + last * nl
    less_layers, less_inputs = (lighter * each for each in missing(choices))
    if choices["layers"] == "experts":
        dense, further = further_layers(choices)
        expert = nr * (Ler + first + last - further) / chunk_count - lighter + nl * further
        return {
            "Hd": (1 - rfull) * (nr * (Ldr - dense) / chunk_count + nl * dense),
            "He": (1 - rfull) * expert,
            "Hc": rfull * nr * inputs / chunk_count - less_inputs + rfull * nl * (dense + further),
        }
    return {
        "Hd": nr * (layers - rfull * again) / chunk_count - less_layers,
        "Hc": rfull * nr * inputs / chunk_count - less_inputs,
    }
