"""Mixed GPUs: pipeline stages on several kinds of GPUs, each judged and timed by the figures of its own.

Formulas of rank r have the machine of that rank: its products, memory, links and network. A pipeline waits for its
slowest stage, so what all stages need is found by asking these formulas for every rank, and is a parameter of a step:
m - 1 micro-batches take the time of the slowest stage, and one that of all. What is sent passes every border once while
the pipeline fills and drains; between, each micro-batch waits for the slowest border, as Metis counts stages. With
measured links each stage has the slowest link of its own groups, and each border that of its own nodes.

Of several chunks of layers on a GPU all stages work on the same one for as many micro-batches as there are stages, so
each chunk takes as long as on the stage that is slowest with it, and only the first one fills and drains the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sympy import Eq, Expr

from ..axis import Axis
from ..parallel.rules import Rule
from ..parameters import ACROSS, symbol, symbols
from .system import Aspect, Choices, System

NAME = "gpus"
(V,) = symbols("V")


def _rules(choices: Choices) -> Sequence[Rule]:
    if choices[NAME] != "mixed" or choices["schedule"] != "interleaved" or choices["layers"] != "experts":
        return ()
    return (Rule("kinds_chunks", "V", Eq(V, 1), "must be 1 for layers with experts on several kinds of GPUs: chunks of"
                 " unequal layers are not counted yet there"),)


def _across(choices: Choices) -> Mapping[str, Expr]:
    if choices[NAME] != "mixed":
        return {}
    return {end: symbol(letter) for letter, end, _, _ in ACROSS}


SYSTEM = System(
    Axis(NAME, "GPUs of the pipeline stages", {
        "alike": "the same for all",
        "mixed": "several kinds, each stage on one of them (kinds in a cluster file)",
    }, rowless=("alike", "mixed"), needs={"mixed": {"stages": "listed"}}),
    ("megatron", "nanotron"),
    words="several kinds of GPUs", changes=(Aspect.MACHINES,),
    apart=tuple(aspect for aspect in Aspect if aspect is not Aspect.LINKS),
    counted={"stages": ("listed",), "schedule": ("1f1b", "interleaved")},
    rules=_rules, across=_across,
)
