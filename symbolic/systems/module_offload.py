"""Inputs of experts on the host: Megatron-Core's fine-grained offload of the module ``expert_fc1``.

Read in megatron-core 0.16.1. The 16-bit input of the experts' first projection is copied behind that projection, and
its memory is freed when the copy is done. With FP8 it is kept in place of the quantised input, and quantised once more
in the backward pass. The backward pass of one layer brings back the input of the layer before it; the last layer of a
micro-batch brings back that of the micro-batch that goes back next. After the first step two inputs never leave: that
of the last layer of the first backward pass, and that of a last layer which goes back at once.

So one input is on the GPU, and where several micro-batches are in flight, another one that a forward pass works on or
is copying. A copy is taken to end before the experts of the next layer begin. The GPU waits for a copy that takes
longer than the backward pass of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Eq, Expr, Gt, Integer, Symbol

from ..axis import Axis
from ..functions import Iverson, Max
from ..ledger import Place, Tensor
from ..parallel.rules import Rule
from ..parameters import symbols
from ..terms import TermSet, product, total
from .system import Aspect, Choices, Part, System, copy_time, is_moved

NAME = "module_offload"
He, Ler, m, rfull, rmoe = symbols("He Ler m rfull rmoe")

#: The module of each option whose saved tensors leave.
MODULES = {"expert_fc1": "experts_up"}

_BESIDE = "with module_offload = expert_fc1"


def _rules(choices: Choices) -> Sequence[Rule]:
    if choices[NAME] == "none":
        return ()
    return (
        Rule("module_recompute", "rfull", Eq(rfull, 0), f"must be 0 {_BESIDE}: not counted yet otherwise"),
        Rule("module_moe", "rmoe", Eq(rmoe, 0), f"must be 0 {_BESIDE}: not counted yet otherwise"),
    )


def _moved(tensor: Tensor, elements: Expr, place: Place, choices: Choices) -> Expr:
    if place is not Place.EXPERTS or tensor.module != MODULES.get(choices[NAME]):
        return Integer(0)
    return is_moved(elements)


def _away(place: Place, choices: Choices) -> Expr:
    """Return the layers of experts, times micro-batches, whose inputs have left the GPU at its peak."""
    return Max(Integer(0), He - 1 - Iverson(Gt(He, Ler))) if place is Place.EXPERTS else Integer(0)


def _host(terms: TermSet, choices: Choices) -> Sequence[Symbol]:
    if choices[NAME] == "none":
        return ()
    return (terms.add("stage.host_module_offload",
                      product(Max(Integer(0), He - 1), terms["expert_layer.moved"].symbol), "bytes",
                      "rank r, on the host: inputs of experts of all micro-batches in flight but one"),)


def _time(terms: TermSet, choices: Choices) -> Sequence[Part]:
    if choices[NAME] == "none":
        return ()
    copied = copy_time(terms, "expert_layer", "the input of experts")
    waiting = Max(Integer(0), total(copied, -terms["expert_layer.backward_time"].symbol))
    terms.add("stage.copy_waiting", product(m, Ler, waiting), "s",
              "rank r, all micro-batches: waiting for inputs of experts on their way back")
    return (Part("copy_waiting", "stage.copy_waiting", "waiting for inputs of experts to come back"),)


SYSTEM = System(
    Axis(NAME, "module whose saved tensors wait on the host", {
        "none": "none",
        "expert_fc1": "the first projection of experts (--fine-grained-activation-offloading --offload-modules"
                      " expert_fc1)",
    }, needs={"expert_fc1": {"peak": "saved"}}),
    ("megatron",),
    words="offload of a module", changes=(Aspect.SAVED,), apart=(Aspect.RANKS,),
    counted={
        "layers": ("experts",), "expert_products": ("grouped",), "peak": ("saved",), "adapters": ("none",),
        "fp8": ("none", "current", "block", "mx"), "schedule": ("1f1b", "interleaved"), "data_parallel": ("ddp",),
    },
    rules=_rules, moved=_moved, away=_away, host=_host, time=_time,
    spent={"copy": "saved tensors on their way to the host and back"},
)
