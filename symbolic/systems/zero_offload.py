"""Shards that rest on the host: DeepSpeed's ZeRO-3 (ZeRO-Offload, ZeRO-Infinity) and FSDP2 (``CPUOffloadPolicy``).

As read in ``runtime/zero/stage3.py`` of DeepSpeed 0.19.8: the host holds fp32 master weights, both moments and the fp32
gradients that the update reads, and the summed gradients of micro-batches in their own width. With parameters on the
host, the parts of all of them lie there in 16 bits; what is gathered, and the small ones that stay gathered, are on the
GPU. A step copies gradients down, updates with AdamW on the host and copies weights up; every pass over the layers
copies the rank's part up as it gathers. All of it is written as if nothing hid it.

With FSDP2 (``_fully_shard`` of PyTorch 2.13) shards of parameters, gradients and optimizer states are on the host as
they would be on the GPU: a unit's shards are copied up for each gather, a reduced gradient down behind its reduction.
Scales of 4-bit weights are no parameters, and stay on the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Expr, Gt, Integer, Symbol

from ..axis import Axis
from ..ledger import Role
from ..parallel.groups import GROUPS
from ..parallel.rules import Rule
from ..parameters import symbols
from ..rates import host_link_time, host_stream_time
from ..terms import TermSet, product, total
from .system import Aspect, Choices, Part, Refusal, System

NAME = "zero_offload"
w, m, rfull, D, c, R = symbols("w m rfull D c R")
#: Options of DeepSpeed.
_DEEPSPEED = ("optimizer", "parameters")

WAITING = Part("zero_waiting", "stage.zero_waiting", "waiting for the host, which updates and sends parameters")
#: Bytes on the host for a trained element: fp32 weight, gradient and both moments; its summed gradient besides.
_FP32 = Integer(4 * 4)
#: Bytes of an element of a parameter, and bytes of host memory that AdamW moves for one.
_BF16, _STREAMED = Integer(2), Integer(4 * 4 + 3 * 4)
#: Bytes of an element of FSDP2's shards, by precision.
_SHARD = {"bf16": Integer(2), "mixed": Integer(4)}


def _rules(choices: Choices) -> Sequence[Rule]:
    if choices[NAME] != "fsdp":
        return ()
    return (Rule("offload_ranks", "D", Gt(D * c, R), "must be 2 or more for each copy of the shards that are on the"
                 " host: one alone is not counted yet"),)


def _refused(choices: Choices) -> Sequence[Refusal]:
    chosen = choices[NAME] != "none"
    return (
        Refusal("zero_offload without DeepSpeed: choose data_parallel = deepspeed, or zero_offload = fsdp",
                choices[NAME] in _DEEPSPEED and choices["data_parallel"] != "deepspeed"),
        Refusal("zero_offload = fsdp without FSDP2: choose data_parallel = fsdp",
                choices[NAME] == "fsdp" and choices["data_parallel"] != "fsdp"),
        Refusal("zero_offload = fsdp with reshard = never: choose reshard = default",
                choices[NAME] == "fsdp" and choices["reshard"] == "never"),
        Refusal(f"zero_offload with optimizer {choices['optimizer']}", chosen and choices["optimizer"] != "adamw"),
        Refusal(f"zero_offload = fsdp with precision {choices['precision']}",
                choices[NAME] == "fsdp" and choices["precision"] not in _SHARD),
        Refusal(f"pinned = {choices['pinned']} with zero_offload = {choices[NAME]}: choose pinned = all or none",
                choices["pinned"] in _DEEPSPEED and choices[NAME] != "parameters"),
        Refusal("4-bit weights on the host", choices[NAME] == "parameters" and choices["base_weights"] != "full"),
    )


def _share(role: Role, choices: Choices) -> Expr:
    every = (Role.OPTIMIZER, Role.GRADIENT, Role.WEIGHT)
    gone = {"none": (), "optimizer": every[:2], "parameters": every, "fsdp": every}[choices[NAME]]
    return Integer(0) if role in gone else Integer(1)


def _parts(terms: TermSet) -> tuple[Expr, Expr]:
    """Return the elements of a rank's part: trained ones, and all."""
    known = terms if terms.base is None else terms.base
    here = {name: group for group in GROUPS if (name := f"stage.{group.prefix}shard_elements") in known}
    if terms.base is not None:
        terms.include([*here])
    return (total(*(terms[name].symbol for name, group in here.items() if not group.frozen)),
            total(*(terms[name].symbol for name in here)))


def _host(terms: TermSet, choices: Choices) -> Sequence[Symbol]:
    if choices[NAME] == "none":
        return ()
    trained, every = _parts(terms)
    if choices[NAME] == "fsdp":  # gradients and both moments are as wide as what is trained
        sizes = [product(_SHARD[choices["precision"]], 3 * trained + every)]
    else:
        sizes = [product(_FP32 + w, trained)]
    if choices[NAME] == "parameters":
        sizes.append(product(_BF16, every))
    return (terms.add("stage.host_zero_offload", total(*sizes), "bytes",
                      "rank r, on the host: weights, gradients and moments of what is trained, and parameters"),)


def _time(terms: TermSet, choices: Choices) -> Sequence[Part]:
    if choices[NAME] == "none":
        return ()
    trained, every = _parts(terms)
    if choices[NAME] == "fsdp":
        width = _SHARD[choices["precision"]]
        seconds = [host_link_time(product(width, m, trained + 2 * every)),
                   host_stream_time(product(7 * width, trained))]  # AdamW reads four of an element and writes three
    else:
        seconds = [host_link_time(product(w + _BF16, trained)), host_stream_time(product(_STREAMED, trained))]
    if choices[NAME] == "parameters":
        passes = product(m, 2 + rfull)
        seconds.append(host_link_time(product(_BF16, passes, every)))
    terms.add("stage.zero_waiting", total(*seconds), "s",
              "rank r: gradients and weights copied, AdamW on the host, and parameters copied for every pass")
    return (WAITING,)


SYSTEM = System(
    Axis(NAME, "what ZeRO-3 of DeepSpeed, or FSDP2, keeps on the host", {
        "none": "nothing",
        "optimizer": "optimizer states and gradients, which the host updates (offload_optimizer)",
        "parameters": "the parts of all parameters too (offload_param)",
        "fsdp": "shards of parameters, their gradients and optimizer states, which it updates (FSDP2's offload)",
    }, rowless=("none", "optimizer", "parameters", "fsdp"),
        needs={**{option: {"data_parallel": "deepspeed", "precision": "mixed"} for option in _DEEPSPEED},
               "fsdp": {"data_parallel": "fsdp"}}),
    ("huggingface",),
    words="shards on the host", changes=(Aspect.STATES,),
    rules=_rules, refused=_refused, share=_share, host=_host, time=_time,
    spent={"zero": "optimizer and parameters on the host"},
    fixed=lambda choices: {"zero1": 1, "zero2": 1, "zero3": 1} if choices[NAME] in _DEEPSPEED else {},
)
