"""Token-level pipelines: a sequence is cut into slices, which pass the pipeline one after another.

A slice attends to itself and to the slices before it, whose keys and values are kept. Its backward pass needs the
gradients that later slices gave its keys and values, so slices go back in the opposite order. TeraPipe runs all forward
passes first, as GPipe does (Li et al. 2021). Seq1F1B runs a backward pass after each forward pass, as soon as the last
rank has all slices of a sequence (Sun et al. 2024): rank r holds p - r + n - 1 slices of n to a sequence.

A slice's own rows hold its keys and values until its backward pass, which is the last to read them. Full recompute
keeps them beside the input of a layer. Their gradients from later slices are added up in 16 bits, for the sequence that
is on its way back. Slices have equal lengths, so the last one takes longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sympy import Eq, Expr, Gt, Integer

from ..axis import Axis
from ..dimensions import BATCH, HEAD_DIM, KV_HEADS, SEQUENCE
from ..functions import Iverson, Max, Min
from ..parallel.rules import Rule, local_name
from ..parameters import symbols
from ..slicing import attended
from ..terms import TermSet, product, term_symbol, total
from .system import Aspect, Choices, Part, System, Transient

NAME = "slices"
sn, m, p, r, c, V, L, Lr, nr, nf, nl, rfull, rcore = symbols("sn m p r c V L Lr nr nf nl rfull rcore")
_SLICED = ("tokens", "1f1b")

#: Bytes of the gradients of a key element and of its value.
_BOTH_GRADIENTS = Integer(2 + 2)


def _is_sliced(choices: Choices) -> bool:
    return choices[NAME] != "one"


def _rules(choices: Choices) -> Sequence[Rule]:
    if not _is_sliced(choices):
        return ()
    return (
        Rule("slices_context", "c", Eq(c, 1),
             "must be 1 with slices: keys and values of former slices on other ranks are not counted yet"),
        *((Rule("slices_chunks", "V", Eq(V, 1), "must be 1 with slices: interleaved slices are not counted yet"),)
          if choices["schedule"] == "interleaved" else ()),
    )


def _passes(choices: Choices) -> Expr:
    return sn if _is_sliced(choices) else Integer(1)


def _in_flight(choices: Choices) -> Mapping[str, Expr]:
    """Slices whose saved tensors rank r has at its peak: the same for embedding, layers, head and loss."""
    if not _is_sliced(choices):
        return {}
    every = product(m, sn)
    held = every if choices[NAME] == "tokens" else Min(every, p - r + sn - 1)
    at_last = every if choices[NAME] == "tokens" else sn
    return {"nr": held, "nf": held, "nl": at_last, "ns": at_last}


def _accumulated(terms: TermSet, choices: Choices) -> Expr:
    """Return gradients of keys and values of all slices but the last, after the last one's backward pass."""
    tokens = term_symbol(local_name(SEQUENCE))
    heads = term_symbol(local_name(KV_HEADS))
    return product(_BOTH_GRADIENTS, tokens, BATCH.size, heads, HEAD_DIM.size, Lr, sn - 1)


def _beside(terms: TermSet, choices: Choices, *freed: Expr) -> Expr:
    """Accumulated gradients beside all slices in flight, or beside one less where no forward pass is left."""
    gradients = _accumulated(terms, choices)
    if choices[NAME] == "tokens":
        return Max(Integer(0), total(gradients, *freed))
    more = Iverson(Gt(m * sn, nr))
    return total(product(more, gradients), product(1 - more, Max(Integer(0), total(gradients, *freed))))


def _slice_of_layers(terms: TermSet) -> tuple[Expr, Expr]:
    """Minus the saved tensors and inputs of one slice on rank r, without head and loss."""
    return -terms["stage.inner_activations"].symbol / nr, -terms["stage.input"].symbol / nf


def _in_layers(terms: TermSet, choices: Choices) -> Expr:
    return _beside(terms, choices, *_slice_of_layers(terms))


def _at_the_end(terms: TermSet, choices: Choices) -> Expr:
    """Return the same while a slice's saved tensors of head and loss are there too."""
    return _beside(terms, choices, *_slice_of_layers(terms), -terms["stage.end_activations"].symbol / nl)


def _in_loss(terms: TermSet, choices: Choices) -> Expr:
    """Return the same in a forward pass, which TeraPipe never runs after a backward pass."""
    if choices[NAME] == "tokens":
        return Integer(0)
    return product(Iverson(Gt(m * sn, nr)), _accumulated(terms, choices))


def _time(terms: TermSet, choices: Choices) -> Sequence[Part]:
    """Add the time by which later slices take longer, as far as a rank waits for it.

    A step has a bubble of p - 1 slices of average length. The last slice is the longest one: while the pipeline fills
    and drains it is waited for. Where forward and backward passes take turns, rank r waits in each further sequence for
    the difference of the last slice and each of the first min(p - 1, n).
    """
    if not _is_sliced(choices):
        return ()
    core = terms.add("layer.slice_core", total(
        product(1 + rcore + rfull, terms["attention.core_time"].symbol), terms["attention.core_backward_time"].symbol,
    ), "s", "one layer: core attention of a slice in the middle of a sequence, forward and backward")
    own = terms.add("stage.slice_core", product(Lr, core), "s", "rank r: the same of all its layers")
    filling = product(L - Lr, core, attended(sn - 1, Integer(1), sn) - 1)
    waits = [filling]
    if choices[NAME] == "1f1b":
        uneven = Min(p - 1, sn)
        steps = product(uneven, sn) - product(uneven, uneven + 1) / 2
        waits.append(product(Integer(2), m - 1, own, steps) / sn)
    terms.add("stage.slices_waiting", total(*waits), "s",
              "rank r: waiting for slices that attend to more than the average, in all of a step")
    return (Part("slices_waiting", "stage.slices_waiting", "waiting for longer slices"),)


SYSTEM = System(
    Axis(NAME, "units that pass the pipeline", {
        "one": "whole micro-batches",
        "tokens": "slices of sequences, all forward passes before all backward passes (TeraPipe)",
        "1f1b": "slices of sequences, one forward, one backward (Seq1F1B)",
    }, absent={"one": ("sn",)}, rowless=("one", "tokens", "1f1b"), asked={"1f1b": "sn"},
       needs={option: {"peak": "saved"} for option in _SLICED}),
    ("megatron",),
    words="slices of a sequence", changes=(Aspect.PASSES,), apart=(Aspect.RANKS, Aspect.SAVED),
    counted={
        "layers": ("dense",), "heads": ("grouped",), "attention": ("flash",), "peak": ("saved",),
        "schedule": ("1f1b", "interleaved"), "stages": ("even", "uneven"), "fp8": ("none",), "adapters": ("none",),
        "dropout": ("none",), "mask": ("kernel",), "recompute_method": ("each",), "positions": ("rotary", "learned"),
    },
    rules=_rules, passes=_passes, in_flight=_in_flight, time=_time,
    spent={"slices": "slices that attend to more than others"},
    transients=(
        Transient("key_gradients", "Gradients of former slices' keys and values", ("layer_backward",), _in_layers,
                  "li2021", {NAME: _SLICED}),
        Transient("key_gradients_end", "Gradients of former slices' keys and values",
                  ("after_forward", "loss_backward"), _at_the_end, "li2021", {NAME: _SLICED}),
        Transient("key_gradients_loss", "Gradients of former slices' keys and values", ("loss_forward",), _in_loss,
                  "li2021", {NAME: _SLICED}),
    ),
)
