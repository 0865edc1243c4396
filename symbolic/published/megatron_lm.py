"""Megatron-LM's own estimate, theoretical_memory_usage.py at revision 1bcb3b9e: its path for dense models."""

from __future__ import annotations

from sympy import Expr, Integer, Rational

from ..parameters import symbols
from ..terms import TermSet, product, total
from .sets import (
    FEW_MICROBATCHES,
    IS_ONE_STAGE,
    ONE_RANK,
    PLAIN,
    Counterpart,
    PublishedSet,
    assume,
    new_terms,
    schedule_factor,
)

NAME = "megatron_lm"
s, b, h, a, k, f, v, L, A = symbols("s b h a k f v L A")
t, p, D, sp, zero1, tied, rcore, rmlp = symbols("t p D sp zero1 tied rcore rmlp")
#: The ratio of the parameters of a gated MLP to those of one without a gate.
GATED = Rational(3, 2)
#: Factor of ``compute_activation_memory_without_sp`` for temporaries.
OVERHEAD = Rational(21, 20)


def _parameters(terms: TermSet) -> Expr:
    """Add the terms of parameters; return the symbol of those of the most loaded shard."""

    def add(name: str, meaning: str, *summands: Expr) -> Expr:
        return terms.add(f"{NAME}.{name}", total(*summands), "elements", meaning)

    attention = add("attention_parameters", "parameters of attention of one layer",
                    product(Integer(2), h**2, total(Integer(1), k / a), A / h))
    mlp = add("mlp_parameters", "parameters of SwiGLU of one layer", product(Integer(2), h, f, GATED))
    norm = add("norm_parameters", "parameters of the two RMSNorms of one layer", 2 * h)
    layer = add("layer_parameters", "parameters of one layer", attention, mlp, norm)
    embedding = add("embedding_parameters", "parameters of one vocabulary matrix", h * v)
    add("parameters", "parameters of the model", product(L, layer), h, product(2 - tied, embedding))
    sharded = add(
        "sharded_parameters",
        "parameters of the most loaded shard that tensor parallelism divides: 1/p of the layers and one"
        " vocabulary matrix, without pipeline parallelism also an untied head",
        product(total(product(total(attention, mlp), L / p), embedding), 1 / t),
        product(IS_ONE_STAGE, 1 - tied, embedding / t),
    )
    replicated = add("replicated_parameters", "parameters of the most loaded shard that are not divided by t",
                     product(total(product(L, norm), h), 1 / p))
    return add("gpu_parameters", "parameters of the most loaded shard", sharded, replicated)


def _in_pipeline(layer: Expr) -> Expr:
    """L layers, token ids and the dropout mask of the embedding, as the schedule keeps them."""
    return product(
        total(product(layer, L), product(Integer(8), s, b, p), product(s, b, h, p)),
        schedule_factor(FEW_MICROBATCHES),
    )


def _activations(terms: TermSet) -> Expr:
    """Add the terms of activations; return the symbol of those of the first stage."""

    def add(name: str, meaning: str, *summands: Expr) -> Expr:
        return terms.add(f"{NAME}.{name}", total(*summands), "bytes", meaning)

    layer = add("layer_activations", "activations of one layer over its t ranks, with sequence parallelism"
                " and selective recompute", product(s, b, h, total(Integer(18), 4 * f / h)))
    head = add("head_activations", "inputs of the output layer and of the loss, over the t ranks",
               product(s, b, h, Integer(4), total(Integer(1), v / h)))
    with_sp = add("activations_with_sp", "activations of one GPU, compute_activation_memory",
                  product(total(_in_pipeline(layer), product(IS_ONE_STAGE, head)), 1 / t))
    layer_without = add("layer_activations_without_sp", "activations of one layer on one GPU",
                        product(s, b, h, total(Integer(10), 24 / t)))
    head_without = add("head_activations_without_sp", "logits and output of the final norm on one GPU",
                       product(total(product(s, b, v, 1 / t), product(s, b, h)), Integer(2)))
    without_sp = add(
        "activations_without_sp",
        "activations of one GPU with 5 % for temporaries, compute_activation_memory_without_sp",
        product(total(_in_pipeline(layer_without), product(IS_ONE_STAGE, head_without)), OVERHEAD),
    )
    # Selective recompute is that of core attention, of the MLP, or of both.
    chosen = sp * (1 - (1 - rcore) * (1 - rmlp))
    return add("activations", "activations of one GPU of the first stage: the former where sequence"
               " parallelism and selective recompute are both chosen, else the latter",
               product(chosen, with_sp), product(1 - chosen, without_sp))


def _static_counterparts() -> tuple[Counterpart, ...]:
    whole = assume(PLAIN, t=1, p=1)
    return (
        Counterpart(f"{NAME}.attention_parameters", ("attention.parameters",), "parameters of attention",
                    "equal; the ledger has biases and QK-norm besides", whole, Integer(0)),
        Counterpart(f"{NAME}.mlp_parameters", ("swiglu.parameters",), "parameters of SwiGLU", "equal", whole,
                    Integer(0)),
        Counterpart(f"{NAME}.norm_parameters", ("attention_norm.parameters", "ffn_norm.parameters"),
                    "parameters of the norms of one layer", "equal", whole, Integer(0)),
        Counterpart(f"{NAME}.parameters", ("first.parameters",), "parameters of the model", "equal", whole,
                    Integer(0)),
        Counterpart(f"{NAME}.gpu_parameters", ("first.parameters",), "parameters of one GPU of the first"
                    " stage", "equal on one stage; else the program gives every stage 1/p of the final norm,"
                    " which lies on the last one", assume(PLAIN, p=1), Integer(0)),
        Counterpart(
            f"{NAME}.static", ("first.weight", "first.gradient", "first.optimizer"),
            "weights, gradients and optimizer states of one GPU",
            "equal on one stage without the distributed optimizer; with it the program shares the states over"
            " D ranks, where Megatron-Core shares them over D c and pads its buffer",
            assume(PLAIN, p=1, zero1=0, w=4), Integer(0),
        ),
    )


def _activation_counterparts() -> tuple[Counterpart, ...]:
    small = 4 * s * b * h * k / a + 4 * s * b * a + 8 * s * b
    stage = assume(PLAIN, sp=1, c=1, V=1)
    return (
        Counterpart(f"{NAME}.layer_activations", ("layer.saved",), "activations of one layer",
                    "made for GELU, dropout and keys and values of every head; for Llama mostly too low",
                    ONE_RANK, 6 * s * b * h - 2 * s * b * f - small),
        Counterpart(f"{NAME}.layer_activations_without_sp", ("layer.saved",),
                    "activations of one layer without sequence parallelism",
                    "24 h of the 34 h of a GPT layer with f = 4h are divided by t; f and k have no term",
                    ONE_RANK, 22 * s * b * h - 6 * s * b * f - small),
        Counterpart(f"{NAME}.head_activations", ("final_norm.saved", "head.saved", "loss.saved"),
                    "activations of final norm, head and loss",
                    "the program leaves out the statistics of the norm, masked labels and their mask",
                    ONE_RANK, -13 * s * b),
        Counterpart(f"{NAME}.activations_with_sp", ("first.activation", "first.input"),
                    "activations of one GPU of the first stage",
                    "as for one layer and the head; the mask of a dropout after the embedding, and token ids"
                    " divided by t", stage),
        Counterpart(f"{NAME}.total", ("first.total",), "memory of one GPU of the first stage",
                    "the program takes its formula with sequence parallelism only together with selective"
                    " recompute; the ledger adds tables, padding and what lives for a moment only", stage),
    )


def _build() -> PublishedSet:
    terms = new_terms(NAME, "A v m")
    parameters = _parameters(terms)
    per_parameter = total(product(Integer(18), 1 - zero1), product(zero1, total(Integer(6), 12 / D)))
    static = terms.add(f"{NAME}.static", product(per_parameter, parameters), "bytes",
                       "weights, fp32 gradients and optimizer states of one GPU")
    terms.add(f"{NAME}.total", total(static, _activations(terms)), "bytes",
              "estimate of one GPU, weight and optimizer memory plus activation memory")
    correspondence = (*_static_counterparts(), *_activation_counterparts())
    return PublishedSet(
        NAME, "Megatron-LM, theoretical_memory_usage.py", "megatron_lm", terms, correspondence,
        (
            "Dense Llama: RMSNorm, SwiGLU, no experts, no latent attention, no multi-token prediction.",
            "Gradients are fp32. D is the program's data_parallel_size, which excludes context parallelism.",
            "Activations have h where the width of all queries, A = a d, may differ; parameters have A.",
            "Nothing is divided by the context-parallel size: the activations hold for c = 1.",
            "The number of micro-batches is known, as when the program reports during training.",
            "Full recompute, and sequence parallelism without selective recompute, are reported as without"
            " sequence parallelism, as the program does.",
        ),
    )


SETS = (_build(),)
