"""Narayanan et al. 2021 (arXiv:2104.04473): pipeline bubble, traffic, parameters, FLOPs and time of GPT training."""

from __future__ import annotations

from sympy import Expr, Integer, Rational

from ..parameters import symbols
from ..terms import TermSet, product, term_symbol, total
from .sets import GPT, GPT_RANK, PLAIN, Counterpart, Figure, PublishedSet, assume, new_terms

NAME = "narayanan2021"
s, b, h, u, v, L, t, p, m, V, B, D, N, T, X, Psi = symbols("s b h u v L t p m V B D N T X Psi")
_MICROBATCHES = B / (b * D)
_SLOWEST, _WHOLE, _STEP = "step.slowest_stage", "whole.microbatch_time", "step.hardware_flops"
#: Idle time of stages with less work than the slowest one, in bubbles.
_UNEVEN = (p * term_symbol(_SLOWEST) - term_symbol(_WHOLE)) / (_MICROBATCHES * term_symbol(_SLOWEST))
_RECOMPUTED = assume(GPT_RANK, rfull=1, g=1)


def _build() -> TermSet:
    terms = new_terms(NAME, "v m")

    def add(name: str, unit: str, meaning: str, *factors: Expr) -> Expr:
        return terms.add(f"{NAME}.{name}", product(*factors), unit, meaning)

    add("bubble", "share", "idle time of the pipeline over that of computing, 1F1B (section 2.2.1)", (p - 1) / m)
    add("bubble_interleaved", "share", "the same, interleaved schedule (section 2.2.2)", (p - 1) / (V * m))
    add("pipeline_volume", "elements", "what one stage sends to the next one for a micro-batch, forward or backward"
        " (section 3.2)", b, s, h)
    add("pipeline_volume_scattered", "elements", "the same with the scatter/gather optimization (section 4.1)",
        b * s * h / t)
    layer = add("tensor_volume_layer", "elements", "what one GPU sends to tensor-parallel ones for a layer and"
                " micro-batch (section 3.2)", Integer(8), b, s, h, (t - 1) / t)
    add("tensor_volume", "elements", "the same for the layers of a stage (section 3.2)", L / p, layer)
    add("parameters", "elements", "parameters of a GPT model (equation 2)", Integer(12), L, h**2,
        total(Integer(1), 13 / (12 * h), (v + s) / (12 * L * h)))
    flops = add("flops", "FLOP", "matrix products of one iteration, with full recompute (equation 3)",
                Integer(96), B, s, L, h**2, total(Integer(1), s / (6 * h), v / (16 * L * h)))
    add("flops_time", "s", "training: iterations for T tokens, each with these FLOPs (section 5.1)",
        T / (B * s), flops / (N * X))
    add("training_time", "s", "training on T tokens, Ψ known (equation 4)", Integer(8), T, Psi / (N * X))
    return terms


def _bubbles() -> tuple[Counterpart, ...]:
    remark = "the source takes all stages to be equally long; embedding and head make the last one the slowest"
    kept = (_SLOWEST, _WHOLE)
    meaning = "waiting while the pipeline fills and drains, over the time of m micro-batches"
    return (
        Counterpart(f"{NAME}.bubble", ("step.bubble",), meaning, remark, PLAIN, _UNEVEN, scale=1 / _MICROBATCHES,
                    over=(_SLOWEST,), kept=kept),
        Counterpart(f"{NAME}.bubble_interleaved", ("step.bubble",), f"{meaning}, interleaved", remark, PLAIN,
                    _UNEVEN / V, {"schedule": "interleaved"}, 1 / _MICROBATCHES, (_SLOWEST,), kept),
    )


def _volumes() -> tuple[Counterpart, ...]:
    half = Rational(1, 2)
    return (
        Counterpart(f"{NAME}.pipeline_volume", ("step.sent_bytes",), "output of a stage", "equal; context parallelism"
                    " divides it too", assume(PLAIN, c=1, sp=0), Integer(0), scale=half),
        Counterpart(f"{NAME}.pipeline_volume_scattered", ("step.sent_bytes",), "output of a stage, sequence"
                    " parallelism", "equal: today each rank has its share of the sequence, and sends that",
                    assume(PLAIN, c=1, sp=1), Integer(0), scale=half),
        Counterpart(f"{NAME}.tensor_volume_layer", ("layer.tensor_forward_bytes", "layer.tensor_backward_bytes"),
                    "all-reduces of one layer", "equal, for a gated MLP too; with sequence parallelism each is an"
                    " all-gather and a reduce-scatter of the same size, and the input is gathered once more behind"
                    " products of the backward pass", assume(PLAIN, c=1, sp=0), Integer(0), scale=(t - 1) / (2 * t)),
    )


def _work() -> tuple[Counterpart, ...]:
    masked = 8 * B * L * h * s**2
    causal = "the source counts attention whole, the ledger without the half that the causal mask hides"
    return (
        Counterpart(f"{NAME}.parameters", ("model.all_parameters",), "parameters of a GPT model",
                    "the source leaves out the norm after the last layer; its positions are a learned table of s rows",
                    {**assume(GPT_RANK, g=1, tied=1), "pos": s}, -2 * h, {**GPT, "positions": "learned"}),
        Counterpart(f"{NAME}.flops", (_STEP,), "products of one step, full recompute", causal, _RECOMPUTED, masked,
                    GPT),
        Counterpart(f"{NAME}.flops_time", (_STEP,), "training at a known FLOP/s", causal, _RECOMPUTED,
                    masked * T / (B * s * N * X), GPT, T / (B * s * N * X)),
        Counterpart(f"{NAME}.training_time", (_STEP,), "training at a known FLOP/s, from parameters",
                    "the source takes 8 FLOPs for each parameter and token; biases, norms and the table of positions"
                    " have none, the head is not recomputed, and attention has L s h more", {**_RECOMPUTED,
                    "tied": Integer(1), "pos": s, "Psi": term_symbol("model.all_parameters")},
                    8 * T * (L * (13 * h - s * h) + h * s + 2 * h + h * u / 4) / (N * X),
                    {**GPT, "positions": "learned"}, T / (B * s * N * X)),
    )


_DAY = 86_400


def _figures() -> tuple[Figure, ...]:
    large = {"h": 25600, "L": 128, "s": 2048, "u": 51200, "g": 1, "t": 1}
    peta = {"T": 450 * 10**9, "Psi": 1008 * 10**9, "N": 3072, "X": 163 * 10**12, **large}
    gpt3 = {"T": 300 * 10**9, "Psi": 175 * 10**9, "N": 1024, "X": 140 * 10**12,
            **large, "h": 12288, "L": 96}
    return (
        Figure(f"{NAME}.parameters", large, "1008.0", "billion", 10**9, "table 1, last row"),
        Figure(f"{NAME}.training_time", peta, "84", "days", _DAY, "section 5.1"),
        Figure(f"{NAME}.training_time", gpt3, "34", "days", _DAY, "section 5.1"),
    )


SETS = (
    PublishedSet(
        NAME, "Narayanan et al. 2021, PTD-P", "narayanan2021", _build(), (*_bubbles(), *_volumes(), *_work()),
        (
            "GPT with tied embeddings, f = 4h, keys and values for every head; V are the chunks of layers per GPU, v in"
            " the source, and v is the vocabulary, V in the source.",
            "All stages are equally long, and sending takes no time in the bubble.",
            "Volumes are elements; an all-reduce among t GPUs sends 2 (t - 1)/t of them.",
            "Data parallelism has no volume in the source but its growth with (D - 1)/D.",
        ),
        figures=_figures(),
    ),
)
