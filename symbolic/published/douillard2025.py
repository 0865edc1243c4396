"""Douillard et al. 2025 (Streaming DiLoCo, arXiv:2501.18512): bits that groups exchange, in all and at once."""

from __future__ import annotations

from sympy import Integer

from ..parameters import symbols
from ..terms import TermSet
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume

NAME = "douillard2025"
H, fr, ob = symbols("H fr ob")
#: Bits of a gradient of synchronous data parallelism.
SYNCHRONOUS = Integer(16)


def _build() -> TermSet:
    terms = TermSet(NAME)
    terms.add(f"{NAME}.share", ob / (SYNCHRONOUS * H), "share", "bits of 16-bit data parallelism that are left")
    terms.add(f"{NAME}.reduction", SYNCHRONOUS * H / ob, "times", "fewer bits than 16-bit data parallelism")
    terms.add(f"{NAME}.peak_reduction", SYNCHRONOUS * fr / ob, "times", "fewer bits at once than 16-bit DiLoCo")
    return terms


SETS = (
    PublishedSet(
        NAME, "Douillard et al. 2025, Streaming DiLoCo", NAME, _build(),
        (
            Counterpart(f"{NAME}.share", ("stage.outer_sent_bytes",), "outer gradients over H all-reduces of 16 bits",
                        "none: parameters that a rank updates, of which 8 groups send 7/8 twice",
                        assume(PLAIN, R=8, D=8, ob=4), Integer(0), {"local_updates": "diloco"},
                        2 / (7 * H), ("stage.outer_elements",), kept=("stage.outer_elements",)),
        ),
        (
            "Fragments are equal shares of the parameters; the source's are whole layers.",
            "Excerpts of the source were read; 100 steps and 4 bits are the pair that gives its number.",
        ),
        figures=(
            Figure(f"{NAME}.reduction", {"H": 100, "ob": 4}, "400", "times", 1, "its 400 times, at H = 100 and 4 bits"),
        ),
        system="local_updates",
    ),
)
