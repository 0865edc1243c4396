"""Attention with grouped queries: projections, rotary embedding, QK-norm, core attention, output projection."""

from __future__ import annotations

from ..dimensions import (
    BATCH,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KEY_SEQUENCE,
    KV_FEATURES,
    KV_HEADS,
    QKV_FEATURES,
    QUERY_FEATURES,
    SEQUENCE,
    SEQUENCE_SP,
)
from ..functions import Iverson
from ..ledger import Component, Place, Tensor, saved, weight
from ..parameters import symbols
from .rmsnorm import norm_rows

b, bias, qkn = symbols("b bias qkn")

QUERY = (SEQUENCE, BATCH, HEADS, HEAD_DIM)
KEY = (SEQUENCE, BATCH, KV_HEADS, HEAD_DIM)
SCORES = (BATCH, HEADS, SEQUENCE, KEY_SEQUENCE)
RESIDUAL = (SEQUENCE_SP, BATCH, HIDDEN)

_LOW = ("mixed", "bf16")
_CAST = ("autocast",)
_FLASH = ("flash", "flash_bshd", "sdpa")
_SCORED = ("eager", "unfused")


def _qkv() -> tuple[Tensor, ...]:
    at = "qkv"
    return (
        weight("qkv.weight", at, (QKV_FEATURES, HIDDEN), "megatron_core", "fused projection of q, k and v"),
        weight("qkv.bias", at, (QKV_FEATURES,), "qwen2", "bias of the QKV projection", bias),
        saved("qkv.input", at, RESIDUAL, 2, "megatron_core", "input of the QKV projection",
              storage="attention.normed", precision=_LOW),
        saved("q.input_cast", at, RESIDUAL, 2, "pytorch", "bf16 copy of the input for q", precision=_CAST),
        saved("k.input_cast", at, RESIDUAL, 2, "pytorch", "bf16 copy of the input for k", precision=_CAST),
        saved("v.input_cast", at, RESIDUAL, 2, "pytorch", "bf16 copy of the input for v", precision=_CAST),
        saved("q.weight_cast", at, (HIDDEN, QUERY_FEATURES), 2, "pytorch", "bf16 copy of the q weight",
              precision=_CAST),
        saved("k.weight_cast", at, (HIDDEN, KV_FEATURES), 2, "pytorch", "bf16 copy of the k weight",
              precision=_CAST),
        saved("v.weight_cast", at, (HIDDEN, KV_FEATURES), 2, "pytorch", "bf16 copy of the v weight",
              precision=_CAST),
    )


def _qk_norm() -> tuple[Tensor, ...]:
    return (
        *norm_rows("q_norm.", "q_norm", (SEQUENCE, BATCH, HEADS), HEAD_DIM, when=qkn),
        *norm_rows("k_norm.", "k_norm", (SEQUENCE, BATCH, KV_HEADS), HEAD_DIM, when=qkn),
    )


def _rope() -> tuple[Tensor, ...]:
    table = (SEQUENCE, HEAD_DIM)
    return tuple(
        saved(f"rope.{of}_{function}", "rope", table, 2, "megatron_core",
              f"bf16 {function} table, made for {of} in every layer", rope=("unfused",))
        for of in ("q", "k")
        for function in ("cos", "sin")
    )


def _core() -> tuple[Tensor, ...]:
    at = "core_attention"
    return (
        saved("q", at, QUERY, 2, "megatron_core", "queries after RoPE", storage="attention.q"),
        saved("k", at, KEY, 2, "megatron_core", "keys after RoPE", storage="attention.k", attention=_FLASH),
        saved("v", at, KEY, 2, "megatron_core", "values", attention=_FLASH, value=("copy",)),
        saved("v.q_part", at, QUERY, 2, "megatron_core", "query part of the fused projection, kept by v",
              storage="attention.fused_q", attention=_FLASH, value=("view",)),
        saved("v.kv_part", at, (SEQUENCE, BATCH, KV_HEADS, HEAD_DIM), 4, "megatron_core",
              "key and value parts of the fused projection, kept by v",
              storage="attention.fused_kv", attention=_FLASH, value=("view",)),
        saved("logsumexp", at, (SEQUENCE, BATCH, HEADS), 4, "dao2023",
              "fp32 logarithm of the softmax denominators", attention=_FLASH),
        saved("k.expanded", at, QUERY, 2, "transformers", "keys repeated for every query head",
              attention=_SCORED),
        saved("v.expanded", at, QUERY, 2, "transformers", "values repeated for every query head",
              attention=_SCORED),
        saved("probabilities_fp32", "softmax", SCORES, 4, "transformers", "softmax of the scores",
              attention=_SCORED),
        saved("probabilities", at, SCORES, 2, "transformers", "bf16 softmax, multiplied with v",
              attention=_SCORED),
        saved("context", at, QUERY, 2, "megatron_core", "output of core attention",
              storage="attention.context", attention=_FLASH),
        # The recompute of core attention keeps its arguments, and v drags the fused projection along.
        saved("checkpoint.q", "checkpoint", QUERY, 2, "megatron_core", "queries, kept as an input",
              storage="attention.q", checkpoint="core_attention"),
        saved("checkpoint.k", "checkpoint", KEY, 2, "megatron_core", "keys, kept as an input",
              storage="attention.k", checkpoint="core_attention"),
        saved("checkpoint.v.q_part", "checkpoint", QUERY, 2, "megatron_core",
              "query part of the fused projection, kept by v",
              storage="attention.fused_q", checkpoint="core_attention"),
        saved("checkpoint.v.kv_part", "checkpoint", KEY, 4, "megatron_core",
              "key and value parts of the fused projection, kept by v",
              storage="attention.fused_kv", checkpoint="core_attention"),
        saved("checkpoint.mask_type", "checkpoint", (), 4, "megatron_core",
              "int32 code of the mask, passed as a tensor", checkpoint="core_attention"),
    )


def _output() -> tuple[Tensor, ...]:
    at = "o_proj"
    return (
        weight("o_proj.weight", at, (HIDDEN, QUERY_FEATURES), "megatron_core", "output projection"),
        saved("o_proj.input", at, QUERY, 2, "megatron_core", "input of the output projection",
              storage="attention.context", attention=("flash", "sdpa")),
        saved("o_proj.input_copy", at, QUERY, 2, "pytorch",
              "contiguous copy of the batch-first output; for b = 1 it is the output itself",
              when=Iverson(b > 1), attention=("flash_bshd",)),
        saved("o_proj.input_same", at, QUERY, 2, "pytorch", "input of the output projection at b = 1",
              storage="attention.context", when=Iverson(b <= 1), attention=("flash_bshd",)),
        saved("o_proj.input_transposed", at, QUERY, 2, "transformers",
              "contiguous copy of the transposed output", attention=_SCORED),
        saved("o_proj.weight_cast", at, (HIDDEN, QUERY_FEATURES), 2, "pytorch",
              "bf16 copy of the output weight", precision=_CAST),
    )


COMPONENTS = (
    Component(
        "attention", "Attention with grouped queries", 30, Place.LAYER,
        (*_qkv(), *_qk_norm(), *_rope(), *_core(), *_output()),
        note="The width of all queries, A = a d, need not be h. With t > k every rank keeps one key and one"
        " value head, while the projection weights stay exactly 1/t.",
        options={"heads": ("grouped",)},
    ),
)
