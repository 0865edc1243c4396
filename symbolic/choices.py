"""The kernel choices that frameworks make differently, each with its options and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """One choice: its options, each with a line that says what is kept."""

    name: str
    meaning: str
    options: Mapping[str, str]


AXES: tuple[Axis, ...] = (
    Axis("norm", "kernel of every RMSNorm", {
        "fused": "keeps its input and the inverse root mean square",
        "eager": "keeps an fp32 copy of its input and the normalised input",
        "keeps_output": "keeps its output, which the next projection keeps anyway, instead of its input",
        "torch": "torch.nn.RMSNorm where no fused kernel exists: two fp32 copies",
    }),
    Axis("swiglu", "kernel of the SwiGLU activation", {
        "fused": "keeps the gate and up projections",
        "eager": "keeps the SiLU output too",
    }),
    Axis("attention", "kernel of core attention", {
        "flash": "FlashAttention: keeps q, k, v, the output and the log-sum-exp",
        "flash_bshd": "FlashAttention with batch-first output: one more copy for b > 1",
        "sdpa": "PyTorch scaled dot product attention: the same tensors as flash",
        "eager": "Hugging Face eager attention: expanded k and v, fp32 and bf16 probabilities",
        "unfused": "Megatron-Core local attention: expanded k and v, fp32 and bf16 probabilities, mask",
    }),
    Axis("value", "memory of v", {
        "copy": "v lies in a tensor of its own",
        "view": "v is a view that keeps the whole fused QKV projection alive",
    }),
    Axis("rope", "kernel of the rotary embedding", {
        "fused": "keeps nothing but the fp32 table of the stage",
        "unfused": "keeps bf16 cosines and sines in every layer, for queries and for keys",
        "shared": "keeps bf16 cosines and sines once (Hugging Face)",
    }),
    Axis("loss", "kernel of the cross entropy", {
        "vocab_parallel": "Megatron-Core: keeps the fp32 softmax of the rank's vocabulary",
        "float": "torch cross entropy on fp32 logits",
        "bf16": "torch cross entropy on bf16 logits",
        "huggingface": "Hugging Face causal LM loss: fp32 logits, shifted labels, logits returned",
    }),
    Axis("precision", "weights, gradients and optimizer states", {
        "mixed": "bf16 weights, fp32 master weights and AdamW moments (Megatron)",
        "bf16": "weights, gradients and AdamW moments in bf16",
        "autocast": "fp32 weights, gradients and moments; bf16 copies of the linear weights while in use",
    }),
    Axis("optimizer", "states that the optimizer keeps for each parameter", {
        "adamw": "two moments",
    }),
    Axis("data_parallel", "how parameters lie in the memory of data-parallel ranks", {
        "ddp": "one buffer for all parameters, its end padded for equal shards (Megatron-Core)",
        "fsdp": "every parameter by itself, its first dimension padded to a multiple of the shards (FSDP2)",
    }),
    Axis("schedule", "order of forward and backward passes in the pipeline", {
        "1f1b": "one forward, one backward, a stage is one chunk of layers",
        "interleaved": "1F1B with several chunks of layers per rank",
        "gpipe": "all forward passes, then all backward passes",
        "zero_bubble": "interleaved, with weight gradients computed later",
        "zbv": "zero bubble with two chunks in a V: first and last stage on rank 0",
        "dualpipev": "DualPipe in a V: first and last stage on rank 0",
    }),
    Axis("stages", "layers of the pipeline stages", {
        "even": "every stage has as many",
        "uneven": "first and last stage may have other numbers, embedding and loss may count as layers",
        "listed": "an explicit list of layers for every stage and chunk",
    }),
    Axis("recompute_method", "which layers full recompute recomputes, and in what groups", {
        "each": "every layer from its own input",
        "uniform": "every layer, in groups of n that keep one input",
        "block": "the first n layers of every chunk, each from its own input",
        "every": "every n-th layer of the stage, from its own input (torchtitan)",
    }),
    Axis("normalisation", "normalisation of the residual stream", {
        "rms": "RMSNorm: a scale",
        "layer": "LayerNorm: scale and bias",
    }),
    Axis("mlp", "feed-forward block of dense layers", {
        "swiglu": "gate, up and down projection with SiLU",
        "gelu": "up and down projection with GELU",
    }),
    Axis("heads", "kind of attention heads", {
        "grouped": "grouped queries (GQA), of which multi-head and multi-query attention are cases",
        "latent": "multi-head latent attention (MLA) over compressed keys and values",
    }),
    Axis("layers", "kinds of layers", {
        "dense": "every layer has a dense MLP",
        "experts": "some or all layers have routed experts",
    }),
    Axis("positions", "how positions enter", {
        "rotary": "rotary embedding of queries and keys",
        "learned": "a learned table added to the embedding",
    }),
    Axis("peak", "what lives besides saved tensors at the moments of a step", {
        "saved": "nothing but what the loss itself makes",
        "megatron_te": "Megatron-LM with Transformer Engine: gradients, gathered inputs, workspaces",
    }),
)

#: Axes that the model decides, not the framework.
ARCHITECTURE: tuple[str, ...] = ("normalisation", "mlp", "heads", "layers", "positions")

BY_NAME: dict[str, Axis] = {axis.name: axis for axis in AXES}
