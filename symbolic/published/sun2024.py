"""Sun et al. 2024 (Seq1F1B, arXiv:2406.03488): slices in flight where forward and backward passes take turns."""

from __future__ import annotations

from sympy import Integer

from ..functions import Min
from ..parameters import symbols
from ..terms import TermSet, total
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume

NAME = "sun2024"
b, p, sn, B, D = symbols("b p sn B D")
_FIRST = total(p, Integer(-1), sn)


def _build() -> TermSet:
    terms = TermSet(NAME)
    flying = terms.add(f"{NAME}.in_flight", _FIRST, "chunks", "slices of which the first rank keeps saved tensors")
    terms.add(f"{NAME}.kept", flying / (p * sn), "share", "saved tensors of the first rank over those of 1F1B")
    return terms


SETS = (
    PublishedSet(
        NAME, "Sun et al. 2024, Seq1F1B", NAME, _build(),
        (
            Counterpart(f"{NAME}.in_flight", ("in_flight",), "slices in flight on rank 0",
                        "a step of fewer slices has no more in flight than it has", assume(PLAIN, r=0),
                        p + sn - 1 - Min(sn * B / (b * D), p + sn - 1), {"slices": "1f1b", "peak": "saved"}),
        ),
        (
            "n slices of equal length; the program starts with p - 1 - r + n - 1 forward passes on rank r.",
            "Gradients of keys and values beside saved tensors are left out.",
        ),
        figures=(
            Figure(f"{NAME}.in_flight", {"p": 8, "sn": 4}, "11", "slices", 1,
                   "program, warm-up of megatron/core/pipeline_parallel/schedules.py with the layout of exp.sh"),
        ),
        system="slices",
    ),
)
