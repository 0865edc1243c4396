"""Multi-head latent attention (MLA): queries, keys and values are made from compressed ones; heads stay their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sympy import Eq

from ..dimension import ONE
from ..dimensions import (
    ALL_POSITIONS,
    BATCH,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    HIDDEN_SCALES,
    KEY_AND_VALUE_DIM,
    KEY_SEQUENCE,
    KEY_VALUE_DIM,
    KEY_VALUE_FEATURES,
    LATENT_KV,
    LATENT_KV_ROTARY,
    LATENT_KV_SCALES,
    LATENT_Q,
    LATENT_Q_SCALES,
    QUERY_FEATURES,
    ROTARY_DIM,
    SEQUENCE,
    SEQUENCE_SP,
    VALUE_DIM,
    VALUE_FEATURES,
)
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved, weight
from ..parameters import symbols
from ..work import Ranks, Stream, Transfer, Work
from ..work_rows import attention_work, column_parallel, context_exchange, norm_work, residual_work, row_parallel
from .norms import norm_rows
from .quantised import ONCE_ONLY, quantised

lq, ts, rnorm, sp, a, b, d, dv, s, lbias = symbols("lq ts rnorm sp a b d dv s lbias")

_TOKENS = (SEQUENCE_SP, BATCH)
_WHOLE = (SEQUENCE, BATCH)
_RESIDUAL = (*_TOKENS, HIDDEN)
_QUERY = (SEQUENCE, BATCH, HEADS, HEAD_DIM)
_VALUE = (SEQUENCE, BATCH, HEADS, VALUE_DIM)
_SCORES = (BATCH, HEADS, SEQUENCE, KEY_SEQUENCE)
_COMPRESSED = Iverson(lq > 0)
#: One sequence, head or token: then a batch of matrices is a view of the projection.
ONE_BATCH = 1 - Iverson(b > 1) * Iverson(a > 1) * Iverson(s > 1)
#: Values as wide as keys are results of a kernel in which one head lies after another.
COPIED = Iverson(Eq(dv, d)) * Iverson(a > 1) * Iverson(s > 1)
_OF_TRANSFORMERS = ("shared", "joined", "joined_held")
_FLASH, _SCORED = ("flash", "sdpa"), ("eager",)
_LATENT: Any = {"heads": ("latent",)}
_NO_FP8 = ("none",)
#: Compressed tokens are shared out with the sequence, or every tensor-parallel rank has all of them (torchtitan).
_OWN_TOKENS: Any = {"gathered_input": ("dropped",)}
_ALL_TOKENS: Any = {"gathered_input": ("kept",)}


def _down() -> tuple[Tensor, ...]:
    at, paper = "latent_down", "deepseek2024v2"
    return (
        weight("q.weight", "latent_q", (QUERY_FEATURES, HIDDEN), paper, "projection of queries that are not compressed",
               Iverson(Eq(lq, 0)), tokens=_WHOLE),
        weight("q_down.weight", at, (LATENT_Q, HIDDEN), paper, "projection to compressed queries, on every rank",
               _COMPRESSED, tokens=_TOKENS),
        weight("kv_down.weight", at, (LATENT_KV_ROTARY, HIDDEN), paper,
               "projection to compressed keys and values and to the rotary part of all keys, on every rank",
               tokens=_TOKENS),
        saved("down.input", at, _RESIDUAL, 2, "megatron_core", "input of the projections",
              storage="attention.normed", when=1 - rnorm, fp8=_NO_FP8, **_OWN_TOKENS),
        saved("down.input_gathered", at, (*_WHOLE, HIDDEN), 2, "torchtitan",
              "input of the projections, gathered over the tensor-parallel ranks", **_ALL_TOKENS),
        # Each of two projections quantises it for itself. Beside a recomputed norm both read the 16-bit one again, but
        # not the projection of queries that are not compressed.
        *quantised("q.input", "latent_q", _TOKENS, (HIDDEN, HIDDEN_SCALES), when=Iverson(Eq(lq, 0))),
        *quantised("q_down.input", at, _TOKENS, (HIDDEN, HIDDEN_SCALES), when=_COMPRESSED * (1 - rnorm)),
        *quantised("kv_down.input", at, _TOKENS, (HIDDEN, HIDDEN_SCALES), when=1 - rnorm),
    )


def _with(options: Any, rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Restrict saved tensors to implementations with these options too; weights are theirs with any."""
    return tuple(row if row.role is Role.WEIGHT else replace(row, options={**row.options, **options}) for row in rows)


def _of_all_tokens() -> tuple[Tensor, ...]:
    """Return the rows of compressed tokens in torchtitan, where every tensor-parallel rank has those of all.

    The norm of compressed keys and values reads a view of what the projection made, which it keeps whole.
    """
    at, src = "latent_up", "torchtitan"
    return (
        saved("q_norm.whole_input", at, (*_WHOLE, LATENT_Q), 2, src, "compressed queries of all tokens",
              when=_COMPRESSED, **_ALL_TOKENS),
        saved("q_norm.whole_rms", at, _WHOLE, 4, src, "fp32 inverse root mean square", when=_COMPRESSED,
              **_ALL_TOKENS),
        saved("q_up.whole_input", at, (*_WHOLE, LATENT_Q), 2, src, "normalised compressed queries of all tokens",
              when=_COMPRESSED, **_ALL_TOKENS),
        saved("kv_norm.whole_input", at, (*_WHOLE, LATENT_KV_ROTARY), 2, src,
              "compressed keys and values of all tokens, beside the rotary part of keys", **_ALL_TOKENS),
        saved("kv_norm.whole_rms", at, _WHOLE, 4, src, "fp32 inverse root mean square", **_ALL_TOKENS),
        saved("kv_up.whole_input", at, (*_WHOLE, LATENT_KV), 2, src,
              "normalised compressed keys and values of all tokens", **_ALL_TOKENS),
    )


def _up() -> tuple[Tensor, ...]:
    at, paper = "latent_up", "deepseek2024v2"
    return (
        *_with(_OWN_TOKENS, norm_rows("q_norm.", at, _TOKENS, LATENT_Q, output_storage="latent.q_normed",
                                      when=_COMPRESSED, projected=True)),
        *_with(_OWN_TOKENS, norm_rows("kv_norm.", at, _TOKENS, LATENT_KV, output_storage="latent.kv_normed",
                                      projected=True)),
        *_of_all_tokens(),
        weight("q_up.weight", at, (QUERY_FEATURES, LATENT_Q), paper, "projection of compressed queries to heads",
               _COMPRESSED, tokens=_WHOLE),
        weight("kv_up.weight", at, (KEY_VALUE_FEATURES, LATENT_KV), paper,
               "projection of compressed keys and values to heads", tokens=_WHOLE),
        saved("q_up.input", at, (*_TOKENS, LATENT_Q), 2, "megatron_core", "normalised compressed queries",
              storage="latent.q_normed", when=_COMPRESSED, fp8=_NO_FP8, **_OWN_TOKENS),
        saved("kv_up.input", at, (*_TOKENS, LATENT_KV), 2, "megatron_core", "normalised compressed keys and values",
              storage="latent.kv_normed", fp8=_NO_FP8, **_OWN_TOKENS),
        *quantised("q_up.input", at, _TOKENS, (LATENT_Q, LATENT_Q_SCALES), normed=True, when=_COMPRESSED),
        *quantised("kv_up.input", at, _TOKENS, (LATENT_KV, LATENT_KV_SCALES), normed=True),
        *(saved(f"rope.{of}_{function}", at, (SEQUENCE, ROTARY_DIM), 2, "megatron_core",
                f"bf16 {function} table, made for {of} in every layer", rope=("unfused",))
          for of in ("q", "k") for function in ("cos", "sin")),
        saved("q", at, _QUERY, 2, "megatron_core", "queries"),
        saved("k", at, _QUERY, 2, "megatron_core", "keys, each with its copy of the rotary part"),
        saved("v", at, _VALUE, 2, "megatron_core", "values", attention=("flash",)),
        saved("v.copied", at, _VALUE, 2, "transformers", "contiguous copy of the values", when=1 - ONE_BATCH,
              attention=("eager",)),
        saved("v.batched_with_keys", at, (SEQUENCE, BATCH, HEADS, KEY_VALUE_DIM), 2, "transformers",
              "up projection of keys and values, kept by the values, which stay a view for b = 1, a = 1 or s = 1",
              when=ONE_BATCH, attention=("eager",)),
        saved("v.with_keys", at, (SEQUENCE, BATCH, HEADS, KEY_VALUE_DIM), 2, "transformers",
              "up projection of keys and values, kept by the values", attention=("sdpa",)),
        # Recomputed up projections keep views of the down projections' outputs.
        saved("checkpoint.q", "checkpoint", (*_TOKENS, LATENT_Q), 2, "megatron_core", "compressed queries",
              checkpoint="mla_up_proj"),
        saved("checkpoint.kv", "checkpoint", (*_TOKENS, LATENT_KV_ROTARY), 2, "megatron_core",
              "compressed keys and values with the rotary part of keys", checkpoint="mla_up_proj"),
        saved("checkpoint.rotary", "checkpoint", (SEQUENCE, BATCH, ROTARY_DIM), 2, "megatron_core",
              "rotary part of keys, gathered from sequence-parallel ranks", when=Iverson(ts > 1),
              checkpoint="mla_up_proj"),
    )


def _core() -> tuple[Tensor, ...]:
    at = "core_attention"
    return (
        saved("logsumexp", at, (SEQUENCE, BATCH, HEADS), 4, "dao2023",
              "fp32 logarithm of the softmax denominators", attention=_FLASH),
        saved("context", at, _VALUE, 2, "megatron_core", "output of core attention",
              storage="latent.context", attention=_FLASH),
        saved("probabilities_fp32", "softmax", _SCORES, 4, "transformers", "softmax of the scores",
              attention=_SCORED),
        saved("probabilities", at, _SCORES, 2, "transformers", "bf16 softmax, multiplied with v", attention=_SCORED),
        saved("checkpoint.mask_type", "checkpoint", (), 4, "megatron_core",
              "int32 code of the mask, passed as a tensor", checkpoint="core_attention"),
        weight("o_proj.weight", "o_proj", (HIDDEN, VALUE_FEATURES), "deepseek2024v2", "output projection",
               tokens=_WHOLE),
        weight("o_proj.bias", "o_proj", (HIDDEN,), "megatron_core",
               "bias of the output projection, the only one in latent attention, on every rank", lbias),
        saved("o_proj.input", "o_proj", _VALUE, 2, "megatron_core", "input of the output projection",
              storage="latent.context", attention=_FLASH),
        saved("o_proj.input_of_heads", "o_proj", _VALUE, 2, "transformers",
              "copy of the output, in which one head lies after another as in the joined queries: by the kernel for"
              " values as wide as keys", when=COPIED,
              attention=("sdpa",), rope=_OF_TRANSFORMERS),
        *quantised("o_proj.input", "o_proj", (SEQUENCE, BATCH, HEADS), (VALUE_DIM, VALUE_DIM), recipes=ONCE_ONLY,
                   attention=_FLASH),
        saved("o_proj.input_transposed", "o_proj", _VALUE, 2, "transformers",
              "contiguous copy of the transposed output", attention=_SCORED),
    )


def _table(name: str, size: int, source: str, meaning: str, *kernels: str) -> Tensor:
    return Tensor(name, "rope", Role.BUFFER, (SEQUENCE, ROTARY_DIM), size, Lifetime.ONCE, source, meaning,
                  options={"rope": kernels})


def _work() -> tuple[Work, ...]:
    core = "megatron_core"
    return (
        *norm_work("q_norm", "latent_up", (*_TOKENS, LATENT_Q)),
        *norm_work("kv_norm", "latent_up", (*_TOKENS, LATENT_KV)),
        *column_parallel("q", "latent_q", Iverson(Eq(lq, 0))),
        *(Transfer(f"{of}_up", "latent_up", Ranks.TENSOR, (*_WHOLE, width), 2, sp, sp + 2 * (1 - sp), core,
                   "compressed tokens gathered, their gradient summed", hidden=sp, when=when)
          for of, width, when in (("q", LATENT_Q, _COMPRESSED), ("kv", LATENT_KV, ONE))),
        # Without sequence parallelism every rank makes this part of the keys, and nothing sums its gradient.
        Transfer("rotary_keys", "latent_down", Ranks.TENSOR, (*_WHOLE, ROTARY_DIM), 2, sp, sp, core,
                 "rotary part of keys gathered, its gradient summed"),
        Stream("rope", "latent_up", (*_WHOLE, HEADS, ROTARY_DIM), 8, 8, core, "rotary parts of queries and keys", 2),
        Stream("keys", "latent_up", _QUERY, 4, 4, core, "keys put together from both parts"),
        *attention_work(HEAD_DIM, VALUE_DIM), *context_exchange(KEY_AND_VALUE_DIM, 2),
        *row_parallel("o_proj", "o_proj"), *residual_work("attention_residual"),
    )


COMPONENTS = (
    Component(
        "latent_norm", "Norm before latent attention", 20, Place.LAYER,
        (
            *norm_rows("", "latent_norm", _TOKENS, HIDDEN, output_storage="attention.normed"),
            saved("checkpoint.input", "checkpoint", _RESIDUAL, 2, "megatron_core", "input of the norm",
                  checkpoint="layernorm"),
        ),
        options=_LATENT,
        work=norm_work("norm", "latent_norm"),
    ),
    Component(
        "latent_attention", "Latent attention", 30, Place.LAYER, (*_down(), *_up(), *_core()),
        note="In training every head has keys and values of its own: what is compressed is kept besides, not instead."
        " Compressed tensors are sharded over the sequence, heads by tensor parallelism.",
        options=_LATENT,
        work=_work(),
    ),
    Component(
        "latent_tables", "Rotary tables of a layer", 60, Place.LAYER,
        (
            _table("angles", 4, "megatron_core", "fp32 rotary angles of every position", "fused", "unfused"),
            _table("cos", 2, "megatron_core", "bf16 cosines", "fused"),
            _table("sin", 2, "megatron_core", "bf16 sines", "fused"),
        ),
        note="Every layer has tables of its own; angles are cached for 32 layers at most.",
        options=_LATENT,
    ),
    Component(
        "latent_shared_tables", "Rotary tables of a stage", 61, Place.STAGE,
        (
            *(saved(name, "rope", (SEQUENCE, ROTARY_DIM), 2, "transformers", f"bf16 {words}, shared by all layers",
                    lifetime=Lifetime.SHARED, rope=_OF_TRANSFORMERS)
              for name, words in (("cos", "cosines"), ("sin", "sines"))),
            Tensor("inverse_frequencies", "rope", Role.BUFFER, (ROTARY_DIM,), 4, Lifetime.ONCE, "transformers",
                   "fp32 inverse frequencies of every second dimension, and the original ones", options={
                       "rope": _OF_TRANSFORMERS, "peak": ("torch",)}),
            Tensor("complex", "rope", Role.BUFFER, (ALL_POSITIONS, ROTARY_DIM), 4, Lifetime.ONCE, "torchtitan",
                   "complex64 rotation of every position and pair of dimensions", options={"rope": ("complex",)}),
        ),
        options=_LATENT,
    ),
    Component(
        "latent_scale", "Scale of the embeddings", 62, Place.STAGE,
        (
            saved("scale", "embedding", (), 2, "transformers", "16-bit scale of the embeddings (MiniCPM3)",
                  lifetime=Lifetime.SHARED),
            Tensor("whole_scale", "embedding", Role.BUFFER, (), 8, Lifetime.ONCE, "transformers",
                   "int64 scale of the embeddings (MiniCPM3)", options={"peak": ("torch",)}),
        ),
        options={**_LATENT, "rope": ("joined",), "layers": ("dense",)},
    ),
)
