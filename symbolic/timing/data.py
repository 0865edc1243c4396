"""Data parallelism in time: gradients that are reduced, weights that are gathered, and the optimizer step."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Eq, Expr, Integer

from ..functions import CeilDiv, Iverson, Max
from ..implementations import Implementation
from ..ledger import Place, Role
from ..parallel.data import WIDE, are_apart, sharing_ranks, states
from ..parallel.groups import GROUPS, Group
from ..parallel.legality import fixed_values
from ..parallel.megatron_fsdp import BUCKET, BUCKET_OF_RANK
from ..parallel.pipeline import chunks, instances
from ..parameters import symbol, symbols
from ..rates import GROUP_BY_NAME, beside_computing, ring_time, stream_time
from ..systems import SYSTEMS
from ..terms import TermSet, product, term_symbol, total
from .copies import WEIGHTS, bytes_moved

w, zero1, og, ow, shards, slowed = symbols("w zero1 og ow shards sl")
tied, p, r, Lr, h, m = symbols("tied p r Lr h m")
#: Weights are gathered beside the forward pass only where gradients are reduced beside the backward pass: the buckets
#: are the same (Megatron-LM asserts it).
_AHEAD = product(og, ow)
#: One of the two ranks that have the matrix of tied embeddings, where these are two.
_TIES = product(tied, Iverson(p > 1), Iverson(Eq(r, 0)) + Iverson(Eq(r, p - 1)))


def add_data(terms: TermSet, implementation: Implementation) -> None:
    """Add the traffic of data-parallel ranks (bytes), the wait for it (s), and the optimizer step (s).

    Weights that are shared out (ZeRO-3, FSDP) are gathered for every pass of a micro-batch, and gradients that are
    (ZeRO-2) reduced after each; both go on beside the pass. Otherwise, and in PyTorch's pipeline, which keeps both
    whole until its last micro-batch, it is once for every step, at its end or, where that is chosen, beside a pass.
    """
    choices, fixed = implementation.choices, fixed_values(implementation)
    every = Integer(choices["pipeline"] == "own")
    zero2, zero3 = (
        product(every, Integer(fixed[name]) if name in fixed else symbol(name)) for name in ("zero2", "zero3")
    )
    if terms.base is not None:  # weights on the host are in no term of the GPU's memory
        terms.include(name for group in GROUPS if (name := _elements(group)) in terms.base)
    trained = [group for group in GROUPS if _elements(group) in terms and not group.frozen]
    shared = [group for group in GROUPS if _elements(group) in terms and not (group.frozen and zero3 == 0)]
    calls = {
        kind: terms.add(f"stage.{kind}_calls", _calls(terms, choices, overlapped), "calls",
                        f"rank r: collectives in which all {words}")
        for kind, overlapped, words in (("gathering", _AHEAD, "weights are gathered"),
                                        ("reducing", og, "gradients are reduced"))
    }
    terms.add("stage.gathered_bytes", total(*(_weights(terms, group, choices) for group in shared)), "bytes",
              "rank r: weights and padding, of which each of n ranks sends 1/n to every other when they are gathered")
    copied = bytes_moved(WEIGHTS, choices, {group: _weights(terms, group, choices) for group in shared})
    if copied != 0:
        gatherings = total(Integer(1), _gathered_again(terms, implementation)) if every else 1 / m
        terms.add("stage.copying", stream_time(product(gatherings, copied)), "s",
                  "rank r: shared-out weights copied into the buffers of their all-gathers and out, of one micro-batch")
    gradients = {group: _gradients(terms, group, choices) for group in trained}
    terms.add("stage.reduced_bytes", total(*gradients.values()), "bytes",
              "rank r: gradients and padding, made whole once by a reduce-scatter and twice by an all-reduce")
    gathered = terms.add("stage.gathering", total(*(
        ring_time(_ranks(group, "data"), calls["gathering"], _weights(terms, group, choices)) for group in shared
    )), "s", "rank r: its weights gathered once by the ranks that share them out")
    # nanotron sums all gradients on all ranks with ZeRO-1 too, by itself and behind the last backward pass.
    passes = Integer(2) if choices["data_parallel"] == "torch_ddp" else 2 - zero1
    beside = product(og, 1 - zero1) if choices["data_parallel"] == "torch_ddp" else og
    reduced = terms.add("stage.reducing", total(*(
        _reducing(size, group, passes, calls["reducing"], choices) for group, size in gradients.items()
    )), "s",
                        "rank r: its gradients summed once over the ranks that hold its parameters")
    forward, backward = (terms[f"stage.{way}_computing"].symbol for way in ("forward", "backward"))
    if zero2 != 0:
        again = product(zero3, gathered, _gathered_again(terms, implementation))
        sharding = total(
            beside_computing(product(zero3, gathered), forward),
            beside_computing(total(again, product(zero2, reduced)), backward),
        )
        terms.add("stage.sharding_waiting", sharding, "s",
                  "rank r: waiting for shared-out weights and gradients, of one micro-batch")
    ends = [
        _beside(beside, product(1 - zero2, reduced), backward),
        _beside(_AHEAD, product(zero1, 1 - zero3, gathered), forward),
    ]
    if choices["data_parallel"] != "fsdp" and choices["adapters"] == "none":
        ends.append(_tying(terms))
    terms.add("stage.data_waiting", total(*ends), "s",
              "rank r: waiting for gradients and weights of data-parallel ranks, once for every step")
    made, weights = terms["stage.gradient"].symbol, _written(terms, implementation)
    resting = total(*(
        product(state.bytes, terms[f"stage.{group.prefix}shard_elements"].symbol)
        for group in trained for state in states(choices, group) if state.resting and state.role is Role.OPTIMIZER
    ))
    used = total(terms["stage.optimizer"].symbol, product(Integer(-1), resting))
    moved = total(product(Integer(2), used), total(made, weights) / shards,
                  product(Integer(2), made))
    terms.add("stage.optimizer_time", stream_time(moved), "s",
              "rank r: its states read and written, its share of gradients read and of weights written; all gradients"
              " read for their norm and set to zero")


def _written(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the bytes of the weights that the optimizer writes: all but frozen ones and those of a reference."""
    frozen = [name for name in terms.terms if name.startswith("stage.") and name.endswith("frozen_weight")]
    fixed = fixed_values(implementation)
    resting = (
        product(state.bytes, elements) / sharing_ranks(Role.WEIGHT, fixed, group.expert)
        for group, elements in trained_elements(terms).items() for state in states(implementation.choices, group)
        if state.resting and state.role is Role.WEIGHT
    )
    return total(terms["stage.weight"].symbol, *(product(Integer(-1), terms[name].symbol) for name in frozen),
                 *(product(Integer(-1), size) for size in resting))


def trained_elements(terms: TermSet) -> dict[Group, Expr]:
    """Return parameters of rank r that have gradients, and their padding, by group."""
    return {group: terms[name].symbol for group in GROUPS
            if not group.frozen and (name := _elements(group)) in terms}


def _calls(terms: TermSet, choices: Mapping[str, str], overlapped: Expr) -> Expr:
    """Return the number of collectives for weights or gradients; each waits for the latency of a ring.

    FSDP has its units: every layer, and what lies outside of the layers. Megatron-Core has a buffer for each chunk of
    layers, cut into buckets that grow with the number of ranks where something runs beside them.
    """
    if choices["data_parallel"] == "fsdp":
        if choices["units"] == "root":
            return total(Lr, Integer(1))
        return total(Lr, product(are_apart(choices), instances(Place.FIRST, choices)), instances(Place.LAST, choices))
    elements = terms[_elements(GROUPS[0])].symbol
    if choices["data_parallel"] != "ddp":
        return CeilDiv(elements, BUCKET)
    bucket = Max(BUCKET, product(BUCKET_OF_RANK, GROUP_BY_NAME["data"].size))
    pieces = Max(chunks(choices), CeilDiv(elements, bucket))
    return total(product(1 - overlapped, chunks(choices)), product(overlapped, pieces))


def _gathered_again(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the share of its weights that a rank gathers once more for the backward pass: what it has freed."""
    reshard = implementation.choices["reshard"]
    if reshard != "default":
        return Integer(reshard == "always")
    groups = [group for group in GROUPS if not group.expert and _elements(group) in terms]
    memory = terms.base or terms
    joined = 1 - are_apart(implementation.choices)
    unit = {"final_norm": Integer(1), "head": Integer(1), "embedding": joined}
    stays = total(*(product(share, term_symbol(term)) for group in groups for name, share in unit.items()
                    if (term := f"{name}.{group.prefix}aligned") in memory))
    whole = total(*(terms[_elements(group)].symbol for group in groups))
    return 1 - product(instances(Place.LAST, implementation.choices), stays) / whole


def _tying(terms: TermSet) -> Expr:
    """Return the all-reduce of the tied matrix's gradients between the first and the last stage."""
    size = terms.add("stage.tied_bytes", product(_TIES, w, h, term_symbol("local.vocab")), "bytes",
                     "rank r: gradients of tied embeddings, summed over the first and the last stage")
    steps = product(Integer(2), _TIES, term_symbol("pipeline.latency"))
    return terms.add("stage.tying", total(steps, size / term_symbol("pipeline.bandwidth")), "s",
                     "rank r: gradients of tied embeddings summed, once for every step")


def _beside(overlapped: Expr, seconds: Expr, computing: Expr) -> Expr:
    return total(product(1 - overlapped, seconds), product(overlapped, beside_computing(seconds, computing)))


def _elements(group: Group) -> str:
    return f"stage.{group.prefix}buffer_elements"


def _weights(terms: TermSet, group: Group, choices: Mapping[str, str]) -> Expr:
    """Return the bytes of a weight: 2, 1 where FP8 weights are the only ones, 4 where they are fp32."""
    size = 1 if group.fp8 else 4 if choices["precision"] in ("autocast", "fp32") else 2
    return product(Integer(size), terms[_elements(group)].symbol)


def _gradients(terms: TermSet, group: Group, choices: Mapping[str, str]) -> Expr:
    """Return the bytes of a group's gradients; those of routers may be wider."""
    size, wider = product(w, terms[_elements(group)].symbol), f"router.{group.prefix}{WIDE}gradient"
    if terms.base is not None and wider in terms.base:
        terms.include([wider])
    return total(size, product(instances(Place.EXPERTS, choices), terms[wider].symbol)) if wider in terms else size


def _reducing(size: Expr, group: Group, passes: Expr, calls: Expr, choices: Mapping[str, str]) -> Expr:
    """Gradients: a reduce-scatter where states are shared out, else an all-reduce; then their shares over replicas."""
    data, replica = _ranks(group, "data"), _ranks(group, "replica")
    share = size / GROUP_BY_NAME[data].size
    within = ring_time(data, product(passes, calls), product(passes, size))
    if any(replica in system.silent(choices) for system in SYSTEMS):
        return within
    return total(
        within,
        ring_time(replica, product(Integer(2), calls), product(Integer(2), share)),
    )


def _ranks(group: Group, kind: str) -> str:
    return f"expert_{kind}" if group.expert else kind
