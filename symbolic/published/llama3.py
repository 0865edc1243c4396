"""Llama 3 (arXiv:2407.21783), 405B: layouts and utilisation of its phases, FLOPs, and the bubble of its pipeline."""

from __future__ import annotations

from sympy import Expr, Integer, Rational

from ..parameters import symbols
from ..terms import TermSet, term_symbol
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume, new_terms

NAME = "llama3"
Psi, T, X, Fm, p, m, V, B, b, D, s, t, c, h, u, L, a, d, k = symbols("Psi T X Fm p m V B b D s t c h u L a d k")
(N,) = symbols("N")
_SLOWEST, _WHOLE, _STEP, _FLOPS = "step.slowest_stage", "whole.microbatch_time", "step.time", "step.model_flops"
_MICROBATCHES = B / (b * D)
_UNEVEN = (p * term_symbol(_SLOWEST) - term_symbol(_WHOLE)) / (_MICROBATCHES * term_symbol(_SLOWEST))
_ALONE = {**assume(PLAIN, tied=0, t=1, g=1), "Psi": term_symbol("model.parameters")}


#: Sizes of the 405B model, for the ledger's count of its products.
_SHAPE = {"h": 16384, "L": 126, "a": 128, "d": 128, "u": 128_256, "s": 8192}


def _build() -> TermSet:
    terms = new_terms(NAME, "m")

    def add(name: str, unit: str, meaning: str, expression: Expr) -> None:
        terms.add(f"{NAME}.{name}", expression, unit, meaning)

    add("bubble", "share", "idle time of the interleaved pipeline (section 3.3.2)", (p - 1) / (V * m))
    add("gpus", "GPUs", "GPUs of a layout (table 4)", t * c * p * D)
    add("batch_tokens", "tokens", "tokens of a batch (table 4, section 3.4.1)", B * s)
    add("flops", "FLOP", "pre-training (section 3.2.1), 6 FLOPs for each parameter and token", 6 * Psi * T)
    add("mfu", "share", "model FLOPs utilisation: FLOP/s of one GPU over its peak (table 4)", X / Fm)
    return terms


def _figures() -> tuple[Figure, ...]:
    """Table 4, its third row as corrected in version 3, with the peak of an H100; batches as training goes on."""
    tera, percent = 10**12, Rational(1, 100)
    rows = ((8192, 1, 64, 8192, 32, 430, "43"), (16384, 1, 128, 8192, 16, 400, "41"),
            (16384, 16, 8, 131_072, 16, 380, "38"))
    trained = {"Psi": 405 * 10**9, "T": 15_600_000_000_000, **_SHAPE}
    figures = [Figure(f"{NAME}.flops", trained, "3.8", "10^25 FLOP", 10**25, "section 3.2.1")]
    for row, (gpus, context, data, length, batch, speed, share) in enumerate(rows, 1):
        where = f"table 4, row {row}"
        figures += [
            Figure(f"{NAME}.gpus", {"t": 8, "c": context, "p": 16, "D": data}, f"{gpus:,}", "GPUs", 1, where),
            Figure(f"{NAME}.batch_tokens", {"B": batch * data, "s": length}, "16", "Mi tokens", 2**20, where),
            Figure(f"{NAME}.mfu", {"X": speed * tera, "Fm": 989 * tera}, share, "%", percent, where),
        ]
    for printed, sequences, length in (("4", 1024, 4096), ("8", 1024, 8192), ("16", 2048, 8192)):
        figures.append(Figure(f"{NAME}.batch_tokens", {"B": sequences, "s": length}, printed, "Mi tokens", 2**20,
                              "section 3.4.1"))
    return tuple(figures)


SETS = (
    PublishedSet(
        NAME, "Llama 3, pre-training of 405B", "llama3", _build(),
        (
            Counterpart(f"{NAME}.bubble", ("step.bubble",), "waiting while the pipeline fills and drains",
                        "the source takes all stages to be equally long; it has one layer less on the first and the"
                        " last stage to come near that", PLAIN, _UNEVEN / V, {"schedule": "interleaved"},
                        1 / _MICROBATCHES, (_SLOWEST,), (_SLOWEST, _WHOLE)),
            Counterpart(f"{NAME}.flops", ("step.model_flops",), "training on T tokens", "6 FLOPs for parameters that"
                        " are looked up or no matrix, and none for attention itself", _ALONE,
                        T * (6 * (h * u + 2 * L * h + h) - 6 * L * a * d * s), scale=T / (B * s)),
            Counterpart(f"{NAME}.mfu", ("step.mfu",), "model FLOPs utilisation", "equal where a GPU does as many FLOPs"
                        " in a second", {"X": term_symbol(_FLOPS) / (N * term_symbol(_STEP))}, Integer(0),
                        kept=(_STEP, _FLOPS)),
        ),
        (
            "V stages on one pipeline rank and m micro-batches, M in the source; D includes no context parallelism.",
            "The source gives no formula of memory, and none of FLOPs: 6 Ψ T is the usual one, and gives its number.",
            "The peak of an H100 is not in the source; 989 TFLOP/s is NVIDIA's for dense BF16.",
        ),
        implementation="megatron", figures=_figures(),
    ),
)
