"""Saved tensors on the host: those that Transformer Engine's CPU offload moves.

It moves saved tensors of a MiB of elements or more, of the first layers. Layer i of n has left when layer L - n + i
starts, and comes back when the backward pass has come as far, so that never more than L - n layers are there.

A layer's tensors are copied when its forward pass is over, one layer after the other on one stream. Layer L - n + i
waits until layer i has left. In the backward pass the copy of layer i starts when layer i + L - n is done, and layer i
waits for it. So both passes wait alike: with equal layers, each of which computes for F and is copied for C, by n C if
L - n = 1, else by n (C - F) - (L - n - 2) F if that is more than 0: the longest path through both streams.

KARMA swaps the first n layers, recomputes the next q and keeps the K others, and lets a copy start as soon as one of K
places on the GPU is free. Recomputing gives the link time: a forward pass waits for n (C - F) - (K - 2 + q) F, or for
the copies that later swapped layers wait for, (n - K) (C - F) - (K - 2) F; a backward pass for n (C - B) - (K - 2) B -
q (F + B), or, because recomputing takes one of the places, for (n - K + 1) (C - B) - (K - 2) B.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import And, Eq, Expr, Integer, Lt, Or, Symbol

from ..axis import Axis
from ..functions import Iverson, Max
from ..ledger import IN_LAYER, Place, Tensor
from ..parallel.rules import Rule
from ..parameters import symbols
from ..terms import TermSet, product, total
from .system import Aspect, Choices, Part, Refusal, System, copy_time, is_moved

NAME = "activation_offload"
ol, L, m, p, rfull, rcore, rmlp, rn = symbols("ol L m p rfull rcore rmlp rn")

#: Layers that are recomputed.
AGAIN = rfull * rn

#: Both passes of a layer.
PASSES = ("forward", "backward")


def _rules(choices: Choices) -> Sequence[Rule]:
    if choices[NAME] == "none":
        return ()
    if choices[NAME] == "karma":
        return (
            Rule("karma_layers", "ol", Lt(ol + AGAIN, L - 1),
                 "plus the layers that are recomputed must leave 2 of num_layers on the GPU"),
            Rule("karma_pipeline", "p", Eq(p, 1), "must be 1 where saved tensors are swapped"),
            Rule("karma_core", "rcore", Eq(rcore, 0), "must be 0 where layers are recomputed"),
            Rule("karma_mlp", "rmlp", Eq(rmlp, 0), "must be 0 where layers are recomputed"),
        )
    return (
        Rule("offload_layers", "ol", Lt(ol, L), "must be less than num_layers"),
        Rule("offload_pipeline", "p", Eq(p, 1), "must be 1 where saved tensors are offloaded"),
        Rule("offload_recompute", "ol", Or(Eq(ol, 0), And(Eq(rfull, 0), Eq(rcore, 0), Eq(rmlp, 0))),
             "must be 0 where something is recomputed"),
    )


def _refused(choices: Choices) -> Sequence[Refusal]:
    needed = {"recompute_method": "block", "data_parallel": "ddp"}
    return tuple(Refusal(f"karma with {axis} = {choices[axis]}: choose {axis} = {option}",
                         choices[NAME] == "karma" and choices[axis] != option) for axis, option in needed.items())


def _moved(tensor: Tensor, elements: Expr, place: Place, choices: Choices) -> Expr:
    if choices[NAME] == "none" or place not in IN_LAYER:
        return Integer(0)
    return is_moved(elements)


def _away(place: Place, choices: Choices) -> Expr:
    return ol if choices[NAME] != "none" else Integer(0)


def _host(terms: TermSet, choices: Choices) -> Sequence[Symbol]:
    if choices[NAME] == "none":
        return ()
    return (terms.add("stage.host_activation_offload", product(ol, terms["layer.moved"].symbol), "bytes",
                      "rank r, on the host: saved tensors of the first layers"),)


def _stalled(computing: Expr, copied: Expr) -> Expr:
    """Return seconds that one pass waits for copies, by the time of one layer and of its copy."""
    alone = Iverson(Eq(L - ol, 1))
    several = Max(Integer(0), total(product(ol, copied - computing), product(-(L - ol - 2), computing)))
    return total(product(alone, ol, copied), product(1 - alone, several))


def _swapped(way: str, forward: Expr, computing: Expr, copied: Expr) -> Expr:
    """Return seconds that one pass of KARMA waits for copies, by the times of a layer's pass and of its copy."""
    kept, more = total(L, -ol, -AGAIN), Integer(way == "backward")
    recomputed = product(AGAIN, total(forward, computing) if way == "backward" else forward)
    places = product(-(kept - 2), computing)
    alone = Max(Integer(0), total(ol, product(Integer(-1), kept), more))
    return Max(
        Integer(0),
        total(product(ol, copied - computing), places, product(Integer(-1), recomputed)),
        total(product(alone, copied - computing), places),
    )


def _time(terms: TermSet, choices: Choices) -> Sequence[Part]:
    if choices[NAME] == "none":
        return ()
    copied = copy_time(terms, "layer", "saved tensors")
    passes = {way: terms[f"layer.{way}_time"].symbol for way in PASSES}
    stalls = [terms.add(f"layer.{way}_copy_waiting",
                        _stalled(own, copied) if choices[NAME] == "layers"
                        else _swapped(way, passes["forward"], own, copied), "s",
                        f"all layers of a micro-batch: waiting for copies in the {way} pass")
              for way, own in passes.items()]
    terms.add("stage.copy_waiting", product(m, total(*stalls)), "s",
              "rank r, all micro-batches: waiting for saved tensors on their way to the host and back")
    return (Part("copy_waiting", "stage.copy_waiting", "waiting for saved tensors to leave and come back"),)


SYSTEM = System(
    Axis(NAME, "where saved tensors wait for the backward pass", {
        "none": "on the GPU",
        "layers": "large ones of the first layers on the host (Transformer Engine)",
        "karma": "the same of the first layers, beside others that are recomputed (KARMA)",
    }, rowless=("none", "layers", "karma"), asked={"layers": "ol"},
       needs={"layers": {"peak": "saved"}, "karma": {"peak": "saved", "recompute_method": "block"}}),
    ("megatron",),
    words="activation offload", changes=(Aspect.SAVED,),
    counted={"layers": ("dense",), "value": ("copy", "repacked"), "peak": ("saved",),
             "fp8": ("none", "delayed", "current"), "data_parallel": ("ddp", "megatron_fsdp")},
    rules=_rules, refused=_refused, moved=_moved, away=_away, host=_host, time=_time,
    amounts={"layers": "ol", "karma": "ol"},
    spent={"copy": "saved tensors on their way to the host and back"},
)
