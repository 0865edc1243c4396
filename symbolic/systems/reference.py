"""A frozen copy of the model beside the one that is trained: the reference of preference training (DPO).

Its weights lie as those of the model do: whole, or shared out by FSDP2 and ZeRO-3, as TRL prepares them. With adapters
the frozen weights are the reference themselves, and log-probabilities that were computed before need none. Its forward
pass keeps nothing; the time of a step does not have it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Integer

from ..axis import Axis
from ..ledger import Role
from ..parallel.weights import State
from .system import Aspect, Choices, Refusal, System

NAME = "reference"


def _states(choices: Choices) -> Sequence[State]:
    if choices[NAME] == "none":
        return ()
    shards = (choices["precision"], choices["data_parallel"]) == ("mixed", "fsdp")
    wide = shards or choices["precision"] in ("autocast", "fp32")
    return (State(NAME, Role.WEIGHT, Integer(4 if wide else 2), "weight of the reference model", "trl", resting=True),)


def _refused(choices: Choices) -> Sequence[Refusal]:
    copy = choices[NAME] == "copy"
    return (
        Refusal("a copy as reference beside adapters, whose frozen weights are the reference",
                copy and choices["adapters"] != "none"),
        Refusal("a copy as reference with parameters on the host", copy and choices["zero_offload"] == "parameters"),
    )


SYSTEM = System(
    Axis(NAME, "reference model of preference training", {
        "none": "none, or the frozen weights beside adapters",
        "copy": "a frozen copy of the weights (DPO)",
    }, rowless=("none",)),
    ("huggingface",),
    words="a copy as reference", changes=(Aspect.WEIGHTS,),
    states=_states, refused=_refused,
)
