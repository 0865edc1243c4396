"""Optimizer on the host: what moves there, and what stays on the GPU.

The hybrid optimizer of Megatron-Core 0.16.1 goes through the parameters and moves whole ones, with all of their
states, until the wanted share is reached. So shares of 0 and 100 % are exact, and between them a rank keeps at most
what is written here, and less than one parameter's states below it. It comes with the flags of the
precision-aware optimizer, but what stays on the GPU has fp32 master weights and moments whatever these say.

Megatron-LM asserts these flags; Megatron-Bridge does not. Without them the distributed optimizer hands its own fp32
master weights to the hybrid optimizer (``DistributedOptimizer.__init__``), which copies them to the host and keeps them
on the GPU as well. Then only moments leave.

A step copies fp32 gradients to the host, updates there with PyTorch's fused AdamW, and copies fp32 parameters back:
PyTorch converts on the GPU where a copy does not block. The GPU updates its own parameters meanwhile. All of it follows
on one stream, so the three parts on the host's side add up. ``--overlap-cpu-optimizer-d2h-h2d`` makes an optimizer of
each parameter and copies on two streams. Gradients then travel beside updates. Parameters do not: the fp32 copies on
the host are not pinned, so each copy back holds up the host, and waits for the GPU's own update.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Expr, Ge, Integer, Le, Symbol

from ..axis import Axis
from ..functions import Max
from ..ledger import SITES, Role
from ..parallel.groups import GROUPS
from ..parallel.rules import Rule
from ..parameters import symbols
from ..rates import host_link_time, host_stream_time, stream_time
from ..terms import TermSet, product, total
from . import interleaving
from .system import Aspect, Choices, Part, Refusal, System, Transient

NAME = "optimizer_offload"
gk, oo, oh, shards = symbols("gk oo oh shards")

WAITING = Part("host_waiting", "stage.host_waiting", "waiting for the optimizer on the host")
#: Bytes of an element's states on the GPU, and how many of them leave it by way of the hybrid optimizer.
STATES, HYBRID = Integer(12), {"cpu": Integer(12), "cpu_moments": Integer(8)}
#: Bytes on the host for an offloaded element: fp32 weight, gradient and both moments.
HOST_BYTES = Integer(16)
#: Bytes of an element on the link, one way: gradients down, parameters up.
FP32 = Integer(4)
#: Bytes of host memory that AdamW moves for an element: weight, gradient, moments read; all but the gradient written.
STREAMED = Integer(4 * 4 + 3 * 4)


def _rules(choices: Choices) -> Sequence[Rule]:
    if choices[NAME] == "interleaved":
        return (Rule("gpu_update_stride", "gk", Ge(gk, 2), "must be 2 or more: the host updates the others"),)
    if choices[NAME] not in HYBRID:
        return ()
    return (Rule("optimizer_offload", "oo", Le(oo, 100), "must be a percentage"),)


def _refused(choices: Choices) -> Sequence[Refusal]:
    optimizer, precision, fsdp = choices["optimizer"], choices["precision"], choices["data_parallel"] == "fsdp"
    return (
        Refusal(f"CPU offload of optimizer {optimizer} with precision {precision}",
                choices[NAME] != "none" and (optimizer != "adamw" or precision != "mixed" or fsdp)),
    )


def _share(role: Role, choices: Choices) -> Expr:
    if role is Role.OPTIMIZER and choices[NAME] == "interleaved":
        return Integer(0)
    if role is Role.OPTIMIZER and choices[NAME] in HYBRID:
        return 1 - oo * HYBRID[choices[NAME]] / (100 * STATES)
    return Integer(1)


def _elements(terms: TermSet) -> Expr:
    """Return parameters that rank r updates, with their padding."""
    names = [f"stage.{group.prefix}shard_elements" for group in GROUPS if not group.frozen]
    known = terms if terms.base is None else terms.base
    terms_here = [name for name in names if name in known]
    if terms.base is not None:
        terms.include(terms_here)
    return total(*(terms[name].symbol for name in terms_here))


def _host(terms: TermSet, choices: Choices) -> Sequence[Symbol]:
    if choices[NAME] == "interleaved":
        elements = _elements(terms)
        size = total(product(HOST_BYTES, elements), interleaving.pinned(elements))
        return (terms.add("stage.host_optimizer_offload", size, "bytes",
                          "rank r, on the host: fp32 weights, gradients and moments; 16-bit weights to send"),)
    if choices[NAME] not in HYBRID:
        return ()
    return (terms.add("stage.host_optimizer_offload", product(HOST_BYTES * oo / 100, _elements(terms)), "bytes",
                      "rank r, on the host: fp32 weights, gradients and moments that are offloaded"),)


def _resident(terms: TermSet, choices: Choices) -> Expr:
    return interleaving.resident(_elements(terms))


def _time(terms: TermSet, choices: Choices) -> Sequence[Part]:
    if choices[NAME] == "none":
        return ()
    if choices[NAME] == "interleaved":
        interleaving.add_times(terms, _elements(terms))
        return (WAITING,)
    moved = terms.add("stage.offloaded_elements", product(oo, _elements(terms)) / 100, "elements",
                      "rank r: parameters that the host updates")
    copied = terms.add("stage.host_copy_time", host_link_time(product(FP32, moved)), "s",
                       "rank r: fp32 gradients copied to the host; fp32 parameters back take as long")
    updated = terms.add("stage.host_update_time", host_stream_time(product(STREAMED, moved)), "s",
                        "rank r: AdamW on the host")
    states, gradients, weights = (terms[f"stage.{name}"].symbol for name in ("optimizer", "gradient", "weight"))
    resting = product(-(STATES - HYBRID[choices[NAME]]), moved)
    own = terms.add("stage.beside_host_time", stream_time(total(
        product(Integer(2), total(states, resting)), product(
            100 - oo, total(gradients, weights)) / (100 * shards))), "s",
        "rank r: the GPU's update of its own parameters, which goes on beside the host's")
    after = total(copied, Max(updated - own, Integer(0)), copied)
    beside = total(updated, copied)
    terms.add("stage.host_waiting", total(product(1 - oh, after), product(oh, beside)), "s",
              "rank r: waiting for the optimizer on the host and its copies, beside the GPU's own update")
    return (WAITING,)


SYSTEM = System(
    Axis(NAME, "where the optimizer works", {
        "none": "on the GPU",
        "cpu": "a share of the parameters is updated on the host (Megatron-Core's hybrid optimizer)",
        "cpu_moments": "the same, and the GPU keeps fp32 weights of all parameters (Megatron-Bridge without its"
                       " precision-aware optimizer)",
        "interleaved": "all states rest on the host; every k-th subgroup comes to the GPU to be updated (Deep Optimizer"
                       " States)",
    }, rowless=("none", *HYBRID, "interleaved"), asked={"cpu": "oo", "interleaved": "gk"}),
    ("megatron",),
    words="the optimizer on the host", changes=(Aspect.STATES,),
    rules=_rules, refused=_refused, share=_share, host=_host, time=_time,
    spent={"host": "the optimizer on the host, and copies for it"},
    fixed=lambda choices: {} if choices[NAME] == "none" else {"zero1": 1}, amounts=dict.fromkeys(HYBRID, "oo"),
    transients=(
        Transient("subgroup", "Optimizer states of a subgroup on the GPU", tuple(SITES), _resident, "maurya2024",
                  {NAME: ("interleaved",)}),
    ),
)
