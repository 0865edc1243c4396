"""Fujii, Watanabe, Yokota 2024 (arXiv:2411.06465): memory of Llama training with DP, TP, PP, CP and SP.

Two variants of the authors differ in one point: whether tensor parallelism divides the weights of the norms.
"""

from __future__ import annotations

from sympy import Expr, Integer

from ..parameters import symbols
from ..terms import TermSet, product, total
from .sets import (
    FEW_MICROBATCHES,
    HAS_STAGES,
    IS_ONE_STAGE,
    ONE_RANK,
    PLAIN,
    Counterpart,
    PublishedSet,
    assume,
    new_terms,
    schedule_factor,
)

s, b, h, a, k, f, v, L = symbols("s b h a k f v L")
t, c, p, w, shards, tied = symbols("t c p w shards tied")
_VOCABULARY = (Integer(2) - tied) * h * v


def _parameters(terms: TermSet, name: str, divide_norms: bool) -> Expr:
    """Add the terms of parameters; return the symbol of those of one GPU."""

    def add(part: str, meaning: str, *summands: Expr) -> Expr:
        return terms.add(f"{name}.{part}", total(*summands), "elements", meaning)

    layer = add("layer_parameters", "parameters of one layer: attention, SwiGLU and two norms",
                product(Integer(2), h**2, total(Integer(1), k / a)), 3 * h * f, 2 * h)
    add("parameters", "parameters of the model; tied embeddings are one matrix instead of two",
        product(L, layer), h, _VOCABULARY)
    divided, whole = layer, Integer(0)
    if not divide_norms:
        whole = add("layer_norm_parameters", "parameters of the two norms of one layer", 2 * h)
        divided = add("layer_matrix_parameters", "parameters of the matrices of one layer", layer, -whole)
    per_gpu = add("one_stage_parameters", "parameters of one GPU without pipeline parallelism",
              product(total(product(L, divided), _VOCABULARY), 1 / t), product(L, whole), h)
    first = add("first_stage_parameters", "parameters of one GPU of the first of several stages",
                product(total(product(L / p, divided), h * v), 1 / t), product(L / p, whole))
    return add("gpu_parameters", "parameters of one GPU of the first stage",
               product(IS_ONE_STAGE, per_gpu), product(HAS_STAGES, first))


def _activations(terms: TermSet, name: str) -> Expr:
    """Add the terms of activations; return the symbol of those of one GPU."""

    def add(part: str, meaning: str, *factors: Expr) -> Expr:
        return terms.add(f"{name}.{part}_activations", product(*factors), "bytes", meaning)

    add("attention", "activations of attention of one layer, over all GPUs",
        s, b, h, total(Integer(6), 4 * k / a))
    add("mlp", "activations of SwiGLU of one layer, over all GPUs", Integer(2), s, b, total(h, 4 * f))
    add("norm", "activations of the two norms of one layer, over all GPUs", Integer(4), s, b, h)
    layer = add("layer", "activations of one layer, over all GPUs (equation 12)",
                s, b, h, total(Integer(12), 4 * k / a, 8 * f / h))
    embedding = add("embedding", "activations of the embedding for p micro-batches, over all GPUs",
                    Integer(8), s, b, h, p)
    head = add("head", "activations of final norm, head and loss, over all GPUs",
               Integer(4), s, b, h, total(Integer(1), v / h))
    in_pipeline = product(schedule_factor(FEW_MICROBATCHES), total(product(L, layer), embedding), 1 / (t * c))
    return terms.add(
        f"{name}.activations", total(in_pipeline, product(IS_ONE_STAGE, head, 1 / (t * c))), "bytes",
        "activations of one GPU of the first stage",
    )


def _static_counterparts(name: str, divide_norms: bool) -> tuple[Counterpart, ...]:
    norms = "the source divides the norms of the layers by t, but every rank keeps them whole; "
    return (
        Counterpart(f"{name}.layer_parameters", ("layer.parameters",), "parameters of one layer",
                    "equal where A = h", ONE_RANK, Integer(0)),
        Counterpart(f"{name}.parameters", ("first.parameters",), "parameters of the model",
                    "equal; the ledger has A = a d where the source has h, biases and QK-norm besides",
                    assume(ONE_RANK, p=1), Integer(0)),
        Counterpart(
            f"{name}.static", ("first.weight", "first.gradient", "first.optimizer"),
            "weights, gradients and optimizer states of one GPU",
            (norms if divide_norms else "") + "the ledger adds the padding of the distributed optimizer's"
            " buffer; with bf16 gradients it has their fp32 copies too, but in the optimizer step only",
            assume({**PLAIN, "d": h / a}, p=1, zero1=0, w=4),
            -36 * L * h * (1 - 1 / t) if divide_norms else Integer(0),
        ),
    )


def _activation_counterparts(name: str) -> tuple[Counterpart, ...]:
    statistics = "the source leaves out the fp32 statistics of the norm"
    return (
        Counterpart(f"{name}.attention_activations", ("attention.saved",), "activations of attention",
                    "the source leaves out the fp32 log-sum-exp of FlashAttention", ONE_RANK, -4 * s * b * a),
        Counterpart(f"{name}.mlp_activations", ("swiglu.saved",), "activations of SwiGLU",
                    "the source keeps the output of SiLU too, which a fused kernel makes again", ONE_RANK,
                    2 * s * b * f),
        Counterpart(f"{name}.norm_activations", ("attention_norm.saved", "ffn_norm.saved"),
                    "activations of the two norms", f"{statistics}s", ONE_RANK, -8 * s * b),
        Counterpart(f"{name}.layer_activations", ("layer.saved",), "activations of one layer",
                    "output of SiLU kept, log-sum-exp and statistics of the norms left out", ONE_RANK,
                    2 * s * b * f - 4 * s * b * a - 8 * s * b),
        Counterpart(f"{name}.embedding_activations", ("stage.embedding.activation", "stage.embedding.input"),
                    "activations of the embedding",
                    "8 s b h for every micro-batch in flight, where the lookup keeps 8 bytes of token id;"
                    " with t > 1 9 bytes of masked id and mask, not divided by t", assume(ONE_RANK, r=0)),
        Counterpart(f"{name}.head_activations", ("final_norm.saved", "head.saved", "loss.saved"),
                    "activations of final norm, head and loss",
                    f"{statistics}, masked labels and their mask", ONE_RANK, -13 * s * b),
        Counterpart(f"{name}.activations", ("first.activation", "first.input"),
                    "activations of one GPU of the first stage",
                    "as for one layer, the embedding and the head; the ledger counts 1F1B, not interleaved,"
                    " and at least one key and value head where t > k", assume(PLAIN, sp=1, V=1)),
        Counterpart(f"{name}.total", ("first.total",), "memory of one GPU of the first stage",
                    "the ledger adds tables, padding and what lives for a moment only; the source leaves that"
                    " and fragmentation to a margin of 20 %", assume(PLAIN, sp=1, V=1)),
    )


_NOTES = (
    "bf16, FlashAttention, sequence parallelism, no dropout and no recompute are assumed.",
    "The vocabulary is the model's own: padding is not mentioned, so the multiple to pad to is 1.",
    "The embedding term 8 s b h p carries an h that the 8 s b p of int64 token ids has not; it is part of"
    " the published estimator and of its test values.",
    "The first of several stages holds one vocabulary matrix and no final norm.",
    "Temporary buffers and fragmentation have no term: the source says that training never ran out of memory"
    " where the estimate was at most 80 % of the GPU's memory. Its table of runs has exceptions, all with"
    " context parallelism.",
)


def _build(name: str, title: str, divide_norms: bool) -> PublishedSet:
    terms = new_terms(name, "v m shards")
    parameters = _parameters(terms, name, divide_norms)
    static = terms.add(
        f"{name}.static", product(total(Integer(2), w, 12 / shards), parameters), "bytes",
        "weights, gradients and optimizer states of one GPU: 18 bytes per parameter (equation 4), or"
        " 6 + 12/(D c) with the distributed optimizer; 2 less with bf16 gradients",
    )
    activations = _activations(terms, name)
    terms.add(f"{name}.total", total(static, activations), "bytes", "estimate of one GPU of the first stage")
    correspondence = (*_static_counterparts(name, divide_norms), *_activation_counterparts(name))
    return PublishedSet(name, title, "fujii2024", terms, correspondence, _NOTES)


SETS = (
    _build("fujii2024", "Fujii et al. 2024, norms of the layers divided by t", divide_norms=True),
    _build("fujii2024_norms", "Fujii et al. 2024, norms of the layers not divided by t", divide_norms=False),
)
