"""Douillard et al. 2023 (DiLoCo, arXiv:2311.08105): how much less groups communicate that synchronise every H steps."""

from __future__ import annotations

from sympy import Integer

from ..parameters import symbols
from ..terms import TermSet
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume

NAME = "douillard2023"
(H,) = symbols("H")


def _build() -> TermSet:
    terms = TermSet(NAME)
    terms.add(f"{NAME}.share", 1 / H, "share", "communication of synchronous data parallelism that is left")
    terms.add(f"{NAME}.reduction", H, "times", "less communication than synchronous data parallelism (abstract)")
    return terms


SETS = (
    PublishedSet(
        NAME, "Douillard et al. 2023, DiLoCo", NAME, _build(),
        (
            Counterpart(f"{NAME}.share", ("stage.outer_sent_bytes",), "outer gradients over H all-reduces of fp32",
                        "none: parameters that a rank updates, of which 8 groups send 7/8 twice",
                        assume(PLAIN, R=8, D=8, ob=32), Integer(0), {"local_updates": "diloco"},
                        1 / (7 * H), ("stage.outer_elements",), kept=("stage.outer_elements",)),
        ),
        (
            "One worker of the source is one data-parallel group here, and its gradients are fp32.",
            "The source counts communication between workers alone; what they do inside goes on in every step.",
        ),
        figures=(Figure(f"{NAME}.reduction", {"H": 500}, "500", "times", 1, "abstract"),),
        system="local_updates",
    ),
)
