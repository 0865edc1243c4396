"""Li et al. 2021 (TeraPipe, arXiv:2102.07988): time of a pipeline of slices, and what it saves over whole sequences."""

from __future__ import annotations

from sympy import Integer

from ..parameters import symbols
from ..terms import TermSet, product, term_symbol, total
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume, new_terms

NAME = "li2021"
b, p, m, sn, B, D, yf, yb = symbols("b p m sn B D yf yb")
_PASSES = sn * B / (b * D)
_SLOWEST, _WHOLE = "step.slowest_stage", "whole.microbatch_time"
#: Idle time of stages with less work than the slowest one, in bubbles.
_UNEVEN = (p * term_symbol(_SLOWEST) - term_symbol(_WHOLE)) / (_PASSES * term_symbol(_SLOWEST))


def _build() -> TermSet:
    terms = new_terms(NAME, "m")
    passes = product(total(product(m, sn), p, Integer(-1)), yf + yb)
    terms.add(f"{NAME}.latency", passes, "s", "all slices of a step, which take equally long: the sum of all and p - 1"
              " times the longest (section 3.3)")
    terms.add(f"{NAME}.bubble", (p - 1) / (m * sn), "share", "idle time of the pipeline over that of computing")
    terms.add(f"{NAME}.speedup", (m + p - 1) / total(m, (p - 1) / sn), "times",
              "a pipeline of whole sequences over one of slices")
    return terms


SETS = (
    PublishedSet(
        NAME, "Li et al. 2021, TeraPipe", NAME, _build(),
        (
            Counterpart(f"{NAME}.bubble", ("step.bubble",),
                        "waiting of slices of average length while the pipeline fills and drains, over the time of all",
                        "the source takes all stages to be equally long; embedding and head make the last one the"
                        " slowest. Of equal slices the last takes longest, which step.slices_waiting has",
                        assume(PLAIN, c=1), _UNEVEN, {"slices": "tokens", "peak": "saved"}, 1 / _PASSES, (_SLOWEST,),
                        (_SLOWEST, _WHOLE)),
        ),
        (
            "The source's sum runs over slices of any length; here all take equally long.",
            "Sending takes no time in the bubble; the source adds it to the time of a slice.",
        ),
        figures=(
            Figure(f"{NAME}.speedup", {"p": 48, "sn": 256, "B": 2, "b": 1, "D": 1}, "5.0", "times", 1,
                   "abstract: 175 billion parameters, 48 stages of 8 GPUs, two sequences",
                   "the formula bounds it: slices of 8 tokens, the shortest that the source's program tries, would not"
                   " fill a GPU"),
            Figure(f"{NAME}.speedup", {"p": 96, "sn": 256, "B": 2, "b": 1, "D": 1}, "6.75", "times", 1,
                   "section 4.1: the same on 96 stages of 4 GPUs", "the same"),
        ),
        system="slices",
    ),
)
