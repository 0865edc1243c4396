"""Korthikanti et al. 2022 (arXiv:2205.05198): activations of a GPT layer with dropout, GELU and f = 4h."""

from __future__ import annotations

from sympy import Expr, Integer

from ..parameters import symbols
from ..terms import TermSet, product, total
from .sets import (
    IS_ONE_STAGE,
    ONE_RANK,
    PLAIN,
    Counterpart,
    PublishedSet,
    assume,
    new_terms,
    schedule_factor,
)

NAME = "korthikanti2022"
s, b, h, a, v, L, t, p, sp, rcore, rfull = symbols("s b h a v L t p sp rcore rfull")
_SCORES = 5 * a * s / h
#: The source's layer in the letters of the ledger: every head has keys and values of its own, f = 4h.
_GPT = {**ONE_RANK, "k": a, "f": 4 * h}
#: The same with what a Llama does not have: dropout, and biases of all projections.
_DROPOUT = assume(_GPT, drop=1, adrop=1, lbias=1)
_ANY_RANKS = {letter: value for letter, value in _DROPOUT.items() if letter not in {"t", "sp"}}
#: The ledger of the source's own model and kernels, and of the same model with FlashAttention.
_MODEL = {
    "normalisation": "layer", "mlp": "gelu", "positions": "learned", "dropout": "masks", "biases": "linear",
}
_UNFUSED = {**_MODEL, "attention": "fused_softmax"}


def _add(terms: TermSet, name: str, meaning: str, *factors: Expr) -> Expr:
    return terms.add(f"{NAME}.{name}", product(*factors), "bytes", meaning)


def _layer(terms: TermSet) -> Expr:
    """Add the activations of one layer, one term for every row of table 2; return the chosen one."""
    _add(terms, "attention_activations", "activations of attention of one layer (section 4.1)",
         s, b, h, total(Integer(11), _SCORES))
    _add(terms, "mlp_activations", "activations of the MLP of one layer (section 4.1)", Integer(19), s, b, h)
    _add(terms, "norm_activations", "activations of the two norms of one layer (section 4.1)",
         Integer(4), s, b, h)
    whole = "activations of one layer"
    _add(terms, "layer_none", f"{whole}, no parallelism (table 2)", s, b, h, total(Integer(34), _SCORES))
    tensor = _add(terms, "layer_tensor", f"{whole}, tensor parallelism (table 2)",
                  s, b, h, total(Integer(10), 24 / t, _SCORES / t))
    sequence = _add(terms, "layer_sequence", f"{whole}, tensor and sequence parallelism (table 2)",
                    s * b * h / t, total(Integer(34), _SCORES))
    tensor_selective = _add(terms, "layer_tensor_selective",
                            f"{whole}, tensor parallelism and selective recompute (table 2)",
                            s, b, h, total(Integer(10), 24 / t))
    sequence_selective = _add(terms, "layer_sequence_selective",
                              f"{whole}, tensor and sequence parallelism and selective recompute (table 2)",
                              s, b, h, 34 / t)
    full = _add(terms, "layer_full", f"{whole}, full recompute (table 2)", Integer(2), s, b, h)
    partly = total(
        product(1 - sp, 1 - rcore, tensor), product(sp, 1 - rcore, sequence),
        product(1 - sp, rcore, tensor_selective), product(sp, rcore, sequence_selective),
    )
    return terms.add(
        f"{NAME}.layer_activations", total(product(1 - rfull, partly), product(rfull, full)), "bytes",
        f"{whole} on one GPU, as sequence parallelism and recompute are chosen",
    )


def _correspondence() -> tuple[Counterpart, ...]:
    attention, mlp, norms = s * b * h + 5 * a * s**2 * b - 4 * s * b * a, -7 * s * b * h, -8 * s * b
    stage = assume(PLAIN, sp=1, c=1, V=1)
    return (
        Counterpart(
            f"{NAME}.attention_activations", ("attention.saved",), "activations of attention",
            "softmax, its dropout and their mask keep 5 a s² b, the dropout after the projection s b h;"
            " FlashAttention keeps the fp32 log-sum-exp instead", _GPT, attention,
        ),
        Counterpart(
            f"{NAME}.mlp_activations", ("swiglu.saved",), "activations of the MLP",
            "SwiGLU has a gate besides, 8 s b h more than GELU, and no dropout mask of s b h", _GPT, mlp,
        ),
        Counterpart(f"{NAME}.norm_activations", ("attention_norm.saved", "ffn_norm.saved"),
                    "activations of the two norms", "the source leaves out the fp32 statistics of the norms",
                    _GPT, norms),
        Counterpart(f"{NAME}.layer_none", ("layer.saved",), "activations of one layer, no recompute",
                    "unfused softmax and dropout masks against SwiGLU and FlashAttention", _GPT,
                    attention + mlp + norms),
        Counterpart(
            f"{NAME}.layer_sequence_selective", ("layer.saved",), "activations of one layer, without scores",
            "FlashAttention never keeps the scores, so its counterpart in the ledger is without recompute;"
            " dropout masks against SwiGLU, log-sum-exp and statistics of the norms", _GPT,
            -6 * s * b * h - 4 * s * b * a - 8 * s * b,
        ),
        Counterpart(f"{NAME}.layer_full", ("layer_input.saved",), "activations of one layer, full recompute",
                    "equal; with sequence parallelism the ledger divides the kept input by t",
                    assume(_GPT, rfull=1), Integer(0)),
        Counterpart(
            f"{NAME}.outside_layers",
            ("first.embedding.activation", "first.embedding.input", "first.final_norm.activation",
             "first.head.activation", "first.loss.activation"),
            "activations of the first stage outside its layers",
            "dropout after the embedding keeps a mask of s b h for every micro-batch in flight; Llama has"
            " none and keeps token ids. Norm, head and loss keep 4 s b (h + v) in both, besides statistics,"
            " masked labels and their mask", stage,
        ),
        Counterpart(f"{NAME}.activations", ("first.activation", "first.input"),
                    "activations of one GPU of the first stage",
                    "as for one layer and outside the layers; the source assumes at least p micro-batches",
                    stage),
    )


def _gpt_correspondence() -> tuple[Counterpart, ...]:
    """Compare the source with the counted GPT layer: the rest is the norms' fp32 statistics, ids and labels."""
    statistics = "the source leaves out the fp32 mean and deviation of the norms"
    layer = ("layer.saved",)
    whole = "activations of one GPT layer"
    stage = assume({**_DROPOUT, **PLAIN}, drop=1, adrop=1, lbias=1, p=1, V=1, m=1)
    outside = ("embedding.activation", "embedding.input", "position_embedding.input", "embedding_dropout.activation",
               "final_norm.activation", "head.activation", "loss.activation")
    return (
        Counterpart(f"{NAME}.attention_activations", ("attention.saved",), "activations of attention",
                    "the mask of the dropout after the projection is a row of its own in the ledger",
                    _DROPOUT, s * b * h, _UNFUSED),
        Counterpart(f"{NAME}.mlp_activations", ("gelu.saved",), "activations of the MLP",
                    "the mask of the dropout after the MLP is a row of its own in the ledger",
                    _DROPOUT, s * b * h, _UNFUSED),
        Counterpart(f"{NAME}.norm_activations", ("attention_norm.saved", "ffn_norm.saved"),
                    "activations of the two norms", statistics, _DROPOUT, -16 * s * b, _UNFUSED),
        Counterpart(f"{NAME}.layer_none", layer, f"{whole}, no parallelism", statistics, _DROPOUT, -16 * s * b,
                    _UNFUSED),
        Counterpart(f"{NAME}.layer_tensor", layer, f"{whole}, tensor parallelism", statistics,
                    assume(_ANY_RANKS, sp=0), -16 * s * b, _UNFUSED),
        Counterpart(f"{NAME}.layer_sequence", layer, f"{whole}, tensor and sequence parallelism", statistics,
                    assume(_ANY_RANKS, sp=1), -16 * s * b / t, _UNFUSED),
        Counterpart(f"{NAME}.layer_tensor_selective", layer, f"{whole}, selective recompute",
                    f"{statistics}; the program keeps a code of the mask", assume(_DROPOUT, rcore=1),
                    -16 * s * b - 4, _UNFUSED),
        Counterpart(f"{NAME}.layer_sequence_selective", layer, f"{whole} with FlashAttention, no recompute",
                    f"{statistics} and FlashAttention's log-sum-exp and state of the random numbers", _DROPOUT,
                    -16 * s * b - 4 * s * b * a - 16, _MODEL),
        Counterpart(f"{NAME}.outside_layers", tuple(f"first.{part}" for part in outside),
                    "activations of one stage outside its layers",
                    "the source leaves out ids of tokens and positions, the statistics of the norm, labels and"
                    " their mask", stage, -33 * s * b, _UNFUSED),
        Counterpart(f"{NAME}.activations", ("first.activation", "first.input"), "activations of one GPU, one stage",
                    "statistics of the norms, ids and labels", stage, -16 * s * b * L - 33 * s * b, _UNFUSED),
    )


def _build() -> PublishedSet:
    terms = new_terms(NAME, "v")
    inside = _add(
        terms, "inside_layers",
        "activations of the layers of the first stage: L/p layers of p micro-batches, more when interleaved"
        " (section 4.2.3)", L, _layer(terms), schedule_factor(Integer(1)),
    )
    outside = _add(
        terms, "outside_layers",
        "dropout after the embedding for p micro-batches; without pipeline parallelism final norm, head and"
        " loss (section 4.3)",
        s * b * h * L / t, total(p / L, product(IS_ONE_STAGE, 4 / L, total(Integer(1), v / h))),
    )
    activations = terms.add(f"{NAME}.activations", total(inside, outside), "bytes",
                            "activations of one GPU of the first stage")
    terms.add(f"{NAME}.total", activations, "bytes",
              "all that the source gives for one GPU: its activations, without weights and optimizer states")
    return PublishedSet(
        NAME, "Korthikanti et al. 2022, activations of GPT", "korthikanti2022", terms,
        (*_correspondence(), *_gpt_correspondence()),
        (
            "A GPT layer with dropout, GELU and f = 4h, keys and values for every head, unfused attention.",
            "Weights, gradients and optimizer states are not part of the source, so the total has none.",
            "There is no context parallelism in the source: the formulas hold for c = 1.",
            "At least as many micro-batches as stages are assumed.",
            "Outside the layers sequence parallelism is assumed, whatever is chosen for the layers.",
        ),
    )


SETS = (_build(),)
