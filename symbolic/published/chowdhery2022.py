"""Chowdhery et al. 2022 (PaLM, arXiv:2204.02311): FLOPs of a token, and the utilisation that follows (appendix B)."""

from __future__ import annotations

from sympy import Expr, Rational

from ..parameters import symbols
from ..terms import TermSet, product, term_symbol, total
from .sets import PLAIN, Counterpart, Figure, PublishedSet, assume, new_terms

NAME = "chowdhery2022"
Psi, L, a, d, A, s, h, u, B, N, Fm, Xt = symbols("Psi L a d A s h u B N Fm Xt")
_ALONE = {**assume(PLAIN, tied=0, t=1, g=1), "Psi": term_symbol("model.parameters")}
_STEP = "step.time"
#: Parameters without a product, embedding and norms, and the half of attention that the causal mask hides.
_MORE = 6 * (h * u + 2 * L * h + h) + 6 * L * a * d * s
_UNUSED = "the source multiplies with parameters that are looked up or no matrix, and counts attention without its mask"


def _build() -> TermSet:
    terms = new_terms(NAME, "A")

    def add(name: str, unit: str, meaning: str, expression: Expr) -> Expr:
        return terms.add(f"{NAME}.{name}", expression, unit, meaning)

    token = add("token_flops", "FLOP", "forward and backward pass of one token (appendix B)",
                total(6 * Psi, 12 * L * A * s))
    matrices = add("token_flops_without_attention", "FLOP", "the same without self-attention (appendix B)", 6 * Psi)
    peak = add("peak_tokens", "tokens/s", "tokens in a second at the peak of all GPUs (appendix B)",
               product(N, Fm) / token)
    add("mfu", "share", "model FLOPs utilisation: tokens in a second over those at the peak (appendix B)", Xt / peak)
    add("mfu_without_attention", "share", "the same without self-attention", product(Xt, matrices) / (N * Fm))
    return terms


def _figures() -> tuple[Figure, ...]:
    """PaLM 540B on 6144 TPU v4: 118 layers, 48 heads of 256, sequences of 2048."""
    values = {"Psi": 540_350_000_000, "L": 118, "a": 48, "d": 256, "s": 2048, "N": 6144, "Fm": 275 * 10**12,
              "Xt": 238_300}
    percent = Rational(1, 100)
    return (
        Figure(f"{NAME}.mfu", values, "46.2", "%", percent, "section 4.1, PaLM 540B"),
        Figure(f"{NAME}.mfu_without_attention", values, "45.7", "%", percent, "section 4.1, PaLM 540B"),
    )


SETS = (
    PublishedSet(
        NAME, "Chowdhery et al. 2022, PaLM", "chowdhery2022", _build(),
        (
            Counterpart(f"{NAME}.token_flops", ("step.model_flops",), "products of one token", _UNUSED, _ALONE, _MORE,
                        scale=1 / (B * s)),
            Counterpart(f"{NAME}.mfu", ("step.mfu",), "model FLOPs utilisation", f"{_UNUSED}; at the same tokens in a"
                        " second", {**_ALONE, "Xt": term_symbol("step.tokens_per_second")},
                        _MORE * B * s / (N * Fm * term_symbol(_STEP)), kept=(_STEP,)),
        ),
        (
            "Ψ is N in the source, A = a d the width H Q of its queries and s its sequence T; a multiplication with an"
            " addition is two FLOPs.",
            "Recomputed products do not count.",
        ),
        figures=_figures(),
    ),
)
