"""Measured links: the slowest link that a group of ranks really uses, in place of one bandwidth of the network.

A ring waits for its slowest link, as Pipette counts it. What is sent through a pipeline passes every link from the
first stage to the last while the pipeline fills and drains; between, each micro-batch waits for the slowest one.
Which nodes a group joins follows from the layout and from the order of the nodes, so the bandwidths are parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sympy import Expr

from ..axis import Axis
from ..parameters import LINKS, symbol
from ..rates import GROUPS_OF_RANKS
from .system import Aspect, Choices, Refusal, System

NAME = "links"


def _links(choices: Choices) -> Mapping[str, Expr]:
    if choices[NAME] != "measured":
        return {}
    return {group: symbol(letter) for letter, group, _ in LINKS}


def _refused(choices: Choices) -> Sequence[Refusal]:
    links = _links(choices)
    return tuple(
        Refusal(f"measured links of {group.meaning}: choose {NAME} = uniform",
                bool(links) and group.name not in links and group.chosen(choices))
        for group in GROUPS_OF_RANKS
    )


SYSTEM = System(
    Axis(NAME, "bandwidth between nodes", {
        "uniform": "that of the network, between all nodes",
        "measured": "of each group of ranks its slowest measured link (a matrix in a cluster file)",
    }, rowless=("uniform", "measured")),
    ("megatron", "huggingface", "torchtitan", "nanotron"),
    words="measured links", changes=(Aspect.LINKS,),
    refused=_refused, links=_links,
)
