"""Jiang et al. 2024 (MegaScale, arXiv:2402.15627): seconds of a batch and days of a training at a measured speed."""

from __future__ import annotations

from ..parameters import symbols
from ..terms import TermSet, product, term_symbol
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume

NAME = "jiang2024"
B, s, T, Xt = symbols("B s T Xt")
_DAY = 86_400
#: 175 billion parameters on 12,288 A100: TP 8, PP 8, batches of 6144 sequences of 2048 tokens.
_LARGEST = {"B": 6144, "s": 2048, "Xt": 1_984_000, "T": 300 * 10**9}


def _build() -> TermSet:
    terms = TermSet(NAME)
    terms.add(f"{NAME}.batch_time", product(B, s) / Xt, "s", "seconds of one batch at a measured speed (table 2)")
    terms.add(f"{NAME}.days", T / product(_DAY, Xt), "days", "days of a training on T tokens at that speed (table 2)")
    return terms


SETS = (
    PublishedSet(
        NAME, "Jiang et al. 2024, MegaScale", "jiang2024", _build(),
        (
            Counterpart(f"{NAME}.batch_time", ("step.time",), "one step", "the same at the same tokens in a second",
                        assume({**PLAIN, "Xt": term_symbol("step.tokens_per_second")}), 0 * s, kept=("step.time",)),
        ),
        (
            "Only the row of 12,288 GPUs was read, in notes that quote it; the source has no other formula of time.",
            "Its 55.2 % of the peak lie between 6 Ψ FLOPs a token with the masked half of attention, 55.1 %, and with"
            " all of it, 55.8 %.",
        ),
        figures=(
            Figure(f"{NAME}.batch_time", _LARGEST, "6.34", "s", 1, "table 2, 12,288 GPUs"),
            Figure(f"{NAME}.days", _LARGEST, "1.75", "days", 1, "table 2, 12,288 GPUs"),
        ),
    ),
)
