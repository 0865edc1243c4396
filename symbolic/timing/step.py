"""Time of one optimizer step, and what follows from it: tokens per second, utilisation, cost and energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sympy import Eq, Expr, Gt, Integer, Symbol

from ..accounts.peak import candidates as ranks_of_peaks
from ..choices import absent_values
from ..functions import Iverson, Max
from ..implementations import Implementation
from ..parallel.mesh import DEGREES
from ..parallel.pipeline import chunks, ends, longest_listed, whole_model
from ..parallel.schedules import SCHEDULES
from ..parameters import symbols
from ..rates import BETWEEN, PATH, beside_computing, send_time
from ..systems import SYSTEMS
from ..systems.system import Part
from ..terms import TermSet, product, term_symbol, total

s, b, h, c, ts, p, r, m, B, N = symbols("s b h c ts p r m B N")
sp, load, cf, D = symbols("sp load cf D")
Fm, pw, price, busy = symbols("Fm pw chi busy")
an, ax, ab = symbols("an ax ab")
V = symbols("V")[0]
#: One sequence, every token of it worked on once.
_ALONE = {
    **dict.fromkeys((*DEGREES, b, D), Integer(1)), sp: Integer(0), load: Integer(100), cf: Integer(0),
}

_PICO = Integer(10) ** 12
#: Figures of all stages together (``System.across``), by the term that is the longest of all ranks.
_LONGEST = {"slowest_stage": "slowest", "data_waiting": "data_waiting", "optimizer": "optimizer"}

#: Parts of the time of all micro-batches, each with its parts of one micro-batch.
SPENT: dict[str, tuple[tuple[str, ...], str]] = {
    "computing": (("forward_computing", "backward_computing", "accumulating"), "forward and backward passes"),
    "launching": (("launching",), "waiting for the host to launch kernels"),
    "recomputing": (("recomputing",), "layers and modules that run once more"),
    **{f"{group.name}": ((f"{group.name}_waiting",), f"waiting for {group.meaning}")
       for group in BETWEEN},
    "sharding": (("copying", "sharding_waiting"),
                 "copies of shared-out weights, and waiting for these and for gradients"),
}

#: The same in the order in which answers show it, with what is done once for every step, in a few words.
SHOWN: dict[str, str] = {
    "computing": "forward and backward passes",
    "recomputing": "layers and modules that run once more",
    "launching": "the host launches kernels too slowly",
    **{group.name: group.meaning for group in BETWEEN},
    "sharding": "shared-out weights and gradients",
    "pipeline": "what is sent between stages",
    "data": "data-parallel ranks, at the end of a step",
    "optimizer": "the optimizer",
    **{name: words for system in SYSTEMS for name, words in system.spent.items()},
    "idle": "pipeline bubbles, and waits for slower stages",
}


def candidates(implementation: Implementation) -> dict[str, dict[Expr, Expr]]:
    """Return the ranks that can be the slowest, with what is known of them there.

    With equal stages those are the ends, which have more to do; of a list of stages also the longest in between.
    """
    choices = implementation.choices
    if choices["stages"] == "listed":
        return longest_listed(choices)
    even = choices["stages"] == "even" and choices["layers"] == "dense"
    known = ranks_of_peaks(choices)
    return {name: {r: known[name]} for name in (("first", "last") if even else known)}


def whole(implementation: Implementation) -> dict[Symbol, Expr]:
    """Return one rank with all stages of the model, one after the other; chunks stay as long as they are."""
    return {letter: value for letter, value in whole_model(implementation.choices).items() if letter != V}


def add_step(
    terms: TermSet, implementation: Implementation, parts: Sequence[Part], links: Mapping[str, Expr],
) -> None:
    """Add the slowest stage's micro-batches, the pipeline's idle time, and the work once per step, also ``parts``.

    A pipeline is idle while one micro-batch runs through all other stages, or through their first chunks; passes of
    weight gradients may fill a part of that. Layers take the time there that they take with all ranks in their places.
    Of unequal ``links`` every one is passed once while the pipeline fills and drains; else the slowest is waited for.
    Stages on machines of their own cannot be told apart by their rank: what all of them need is then a parameter.
    """
    schedule, across = SCHEDULES[implementation.choices["schedule"]], _across(implementation.choices)
    cut, passes_of_rank = _cut(implementation), product(m, _cut(implementation))
    of_ranks = {
        "slowest_stage": ("stage.microbatch_time", "one micro-batch on the slowest rank"),
        "data_waiting": ("stage.data_waiting", "waiting for data-parallel ranks, of the rank that waits longest"),
        "optimizer": ("stage.optimizer_time", "the optimizer step of the rank that takes longest"),
        **{part.name: (part.term, f"{part.meaning}, of the rank that takes longest") for part in parts},
    }
    longest = {name: across[end] / _PICO for name, end in _LONGEST.items()} if across else _longest(
        terms, implementation, {name: kind for name, (kind, _) in of_ranks.items()})
    if across:
        longest["slowest_stage"] = _of_chunks(across, implementation.choices)
    slowest, *once = (
        terms.add(f"step.{name}", longest[name], "s", meaning) for name, (_, meaning) in of_ranks.items()
    )
    if across:
        idle = total(across["sum"], -across["slowest"]) / _PICO
    else:
        passes = _of_whole(terms, implementation)
        idle = total(passes, -slowest) / chunks(implementation.choices)
    if schedule.weight_passes:
        filled = product(Integer(schedule.weight_passes), _at(terms, "whole", "stage.weight_gradients"))
        idle = product(idle, Max(Integer(0), 1 - filled / passes))
    bubble = terms.add("step.bubble", idle, "s", "waiting while the pipeline fills and drains")
    sent = terms.add("step.sent_bytes", product(Integer(2), s, b, h) / product(c, ts, cut), "bytes",
                     "output of a stage that a rank sends to the next one, and a gradient of that size back")
    terms.add("stage.messages", _messages(implementation), "messages",
              "rank r: outputs and gradients that it sends to other stages in a step")
    if across:
        terms.add("stage.send", send_time("pipeline", sent, absent_values(implementation.choices), links), "s",
                  "rank r: one message to a stage in another node")
        of_rank, work = chunks(implementation.choices), slowest / (2 * chunks(implementation.choices))
        beside = product(m, of_rank, beside_computing(across["slowest_send"] / _PICO, work))
        sending = total(across["sends"] / _PICO, product(schedule.overlapped, beside),
                        product(1 - schedule.overlapped, m - 1, across["slowest_send"]) / _PICO)
    else:
        sending = _sending(sent, passes_of_rank, schedule.overlapped, slowest, implementation, links)
    waiting = terms.add("step.pipeline_waiting", product(Integer(2), Iverson(Gt(p, 1)), sending), "s",
                        "stages that wait for what is sent between them")
    terms.add("step.time", total(product(passes_of_rank, slowest), bubble, waiting, *once), "s", "one optimizer step")


def _across(choices: Mapping[str, str]) -> Mapping[str, Expr]:
    """Return figures of all stages together, where a system has stages on machines of their own."""
    return {name: figure for system in SYSTEMS for name, figure in system.across(choices).items()}


def _of_chunks(across: Mapping[str, Expr], choices: Mapping[str, str]) -> Expr:
    """Return seconds of a micro-batch that no stage delays: each chunk of layers on the stage slowest with it."""
    further = total(product(total(chunks(choices), Integer(-2)), across["slowest_middle"]), across["slowest_last"])
    return total(across["slowest"], product(Iverson(Gt(chunks(choices), 1)), further)) / _PICO


def _longest(terms: TermSet, implementation: Implementation, kinds: Mapping[str, str]) -> dict[str, Expr]:
    """By name, the longest of each kind of time over all ranks that can be the slowest."""
    ranks = candidates(implementation)
    for name, rank in ranks.items():
        terms.at(name, kinds.values(), rank)
    return {name: Max(*dict.fromkeys(_at(terms, place, kind) for place in ranks)) for name, kind in kinds.items()}


def _of_whole(terms: TermSet, implementation: Implementation) -> Expr:
    """Return seconds of one micro-batch on all stages, one after the other."""
    split = SCHEDULES[implementation.choices["schedule"]].weight_passes
    needed = ["stage.microbatch_time", *(["stage.weight_gradients"] if split else [])]
    blocks = [term.symbol for term in terms.terms.values() if term.owner not in ("", "stage")]
    terms.at("whole", needed, whole(implementation), blocks)
    return _at(terms, "whole", "stage.microbatch_time")


def _sending(
    sent: Expr, passes_of_rank: Expr, overlapped: Expr, slowest: Expr, implementation: Implementation,
    links: Mapping[str, Expr],
) -> Expr:
    """Return seconds in which stages wait for what travels in one direction, of all micro-batches."""
    crossing = Iverson(Gt(term_symbol("pipeline.borders"), 0))
    each = total(total(product(crossing, ax), product(1 - crossing, an), ab) / 10**9,
                 sent / term_symbol("pipeline.send_bandwidth"))
    # Traffic beside the work of another chunk slows it down; where it takes longer, ranks wait.
    of_rank = product(passes_of_rank, chunks(implementation.choices))
    beside = beside_computing(each, slowest / (2 * chunks(implementation.choices)))
    sending = total(
        product(overlapped, total(product(total(p, Integer(-1)), each), product(of_rank, beside))),
        product(1 - overlapped, total(passes_of_rank, p, Integer(-2)), each),
    )
    if PATH not in links:
        return sending
    later = total(sent / term_symbol("pipeline.path_bandwidth"), -sent / term_symbol("pipeline.send_bandwidth"))
    return total(sending, product(crossing, total(p, Integer(-1)), later))


def _messages(implementation: Implementation) -> Expr:
    """Return an output and a gradient of every chunk and micro-batch, where the neighbouring chunk is on another rank.

    In rounds only the first chunk of all has none before it and the last none after it; where chunks lie in a V, the
    ranks at both ends hold two neighbours.
    """
    first, last = ends(implementation.choices)
    at_ends = total(Iverson(Eq(r, 0)), Iverson(Eq(r, p - 1)))
    in_rounds = total(product(Integer(2), chunks(implementation.choices)), product(Integer(-1), at_ends))
    each = in_rounds if first != last else product(Integer(2), total(Integer(2), product(Integer(-1), at_ends)))
    return product(Iverson(Gt(p, 1)), m, _cut(implementation), each)


def _cut(implementation: Implementation) -> Expr:
    """Return passes of the pipeline that a micro-batch is cut into."""
    return product(*(system.passes(implementation.choices) for system in SYSTEMS))


def add_spent(terms: TermSet, implementation: Implementation, once: Sequence[Part]) -> None:
    """Add the parts of step time on rank r (s); the remainder is its wait for slower ranks."""
    parts = []
    for name, (kinds, meaning) in SPENT.items():
        seconds_of_kinds = [terms[f"stage.{kind}"].symbol for kind in kinds if f"stage.{kind}" in terms]
        if seconds_of_kinds:
            seconds = product(m, _cut(implementation), total(*seconds_of_kinds))
            parts.append(terms.add(f"spent.{name}", seconds, "s", f"rank r, all micro-batches: {meaning}"))
    for name in ("step.pipeline_waiting", "stage.data_waiting", "stage.optimizer_time", *(item.term for item in once)):
        part = name.partition(".")[2].partition("_")[0]
        meaning = terms[name].meaning.removeprefix("rank r: ")
        parts.append(terms.add(f"spent.{part}", terms[name].symbol, "s", f"rank r: {meaning}"))
    terms.add("spent.idle", total(terms["step.time"].symbol, product(Integer(-1), total(*parts))), "s",
              "rank r: waiting for other stages, while the pipeline fills and drains and where they take longer")


def add_rates(terms: TermSet, implementation: Implementation) -> None:
    """Add tokens per second, utilisation of the peak, cost and energy of a token."""
    seconds = terms["step.time"].symbol
    tokens = terms.add("step.tokens", product(B, s), "tokens", "tokens of one optimizer step")
    rate = terms.add("step.tokens_per_second", tokens / seconds, "tokens/s", "tokens of the whole job in a second")
    terms.add("step.tokens_per_second_per_gpu", rate / N, "tokens/s", "tokens in a second for each GPU")
    counted = [kind for kind in ("forward", "repeated", "unneeded") if f"stage.{kind}_flops" in terms]
    terms.at("alone", [f"stage.{kind}_flops" for kind in counted], {**whole(implementation), **_ALONE})
    peak = _across(implementation.choices).get("matmul_flops", Fm)
    forward, again, *unneeded = (_at(terms, "alone", f"stage.{kind}_flops") for kind in counted)
    needed = product(Integer(3), B, forward)
    model = terms.add("step.model_flops", total(needed, *(product(Integer(-1), B, each) for each in unneeded)), "FLOP",
                      "products of forward and backward pass that the model needs; of attention the unmasked half")
    hardware = terms.add("step.hardware_flops", total(model, product(B, again)), "FLOP", "those and recomputed ones")
    for name, flops, words in (("mfu", model, "model FLOPs (MFU)"), ("hfu", hardware, "all FLOPs (HFU)")):
        terms.add(f"step.{name}", flops / (product(N, peak) * seconds), "share", f"{words} over what all GPUs could do")
    terms.add("step.cost_per_token", product(N, price, seconds) / (100 * 3600 * tokens), "currency",
              "price of the GPUs for one token")
    working = total(terms["spent.computing"].symbol, terms["spent.recomputing"].symbol)
    drawn = total(product(working, 1000 - busy), product(busy, seconds)) / 1000
    energy = terms.add("step.energy", product(N, pw, drawn) / 1000, "J",
                       "energy of a step: full power while GPUs compute, a share of it while they wait")
    terms.add("step.energy_per_token", energy / tokens, "J", "energy of one token")


def _at(terms: TermSet, place: str, name: str) -> Expr:
    """Return a term with values put in, or itself if it does not depend on them."""
    own = f"{place}.{name.removeprefix('stage.')}"
    return terms[own if own in terms else name].symbol
