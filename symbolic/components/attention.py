"""Attention with grouped queries: projections, rotary embedding, QK-norm, core attention, output projection."""

from __future__ import annotations

from typing import Any

from sympy import Eq, Expr, Gt

from ..choices import ADAPTED, FUSED_ROPE, GATED, MEGATRON_ROPE, UNFUSED_ROPE, UNGATED
from ..dimensions import (
    ALL_QKV_FEATURES,
    BATCH,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    HIDDEN_COLUMNS,
    HIDDEN_PART,
    HIDDEN_SCALES,
    KEY_SEQUENCE,
    KEYS_AND_SINK,
    KV_FEATURES,
    KV_HEADS,
    MASK_BLOCKS,
    QKV_FEATURES,
    QUERY_FEATURES,
    ROTARY_DIM,
    SEQUENCE,
    SEQUENCE_SP,
)
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved, weight
from ..parameters import symbols
from ..work import Ranks, Stream, Transfer, Work
from ..work_rows import (
    attention_work,
    column_parallel,
    context_exchange,
    grid_transfers,
    norm_work,
    residual_work,
    row_parallel,
)
from .norms import norm_rows
from .quantised import AGAIN, quantised

a, b, c, k, kt, s, t, sp, bias, lbias, qkn, adrop, fcopy = symbols("a b c k kt s t sp bias lbias qkn adrop fcopy")
obias, acap = symbols("obias acap")

QUERY = (SEQUENCE, BATCH, HEADS, HEAD_DIM)
KEY = (SEQUENCE, BATCH, KV_HEADS, HEAD_DIM)
SCORES = (BATCH, HEADS, SEQUENCE, KEY_SEQUENCE)
SCORES_AND_SINK = (BATCH, HEADS, SEQUENCE, KEYS_AND_SINK)
RESIDUAL = (SEQUENCE_SP, BATCH, HIDDEN)
_TOKENS = (SEQUENCE, BATCH)

_LOW = ("mixed", "bf16", "fp16", "fp32")
_CAST = ("autocast",)
#: Precisions that make a 16-bit copy of what was computed in fp32.
_ROUNDED = ("mixed", "bf16", "fp16", "autocast")
_TRAINED = ("none",)
#: Where the output projection or its adapter reads its input again in the backward pass.
_READ: Any = {"adapters": ("none", "attention", "all_linear"), "adapter_precision": ("low", "fp32_uncopied")}
_FLASH = ("flash", "flash_bshd", "sdpa", "flex")
_KERNELS = (*_FLASH, "sdpa_masked")
_STEPS = ("sdpa_steps",)
_SOFTMAX_16 = ("fused_softmax", "te_unfused")
_MEGATRON_SCORED = ("unfused", *_SOFTMAX_16)
_SCORED = ("eager", *_MEGATRON_SCORED)
#: Kernels that join a part of each head that is turned and one that is not.
_JOINED = ("joined", "joined_held", "joined_repeated")
_PLAIN, _SUNK = ("none",), ("trained",)
_ROTARY, _UNTURNED = ("rotary", "partial"), ("learned", "alibi")
#: The QKV projection has a bias if it alone has one, or if all projections have one.
_QKV_BIAS = bias + lbias - bias * lbias
_OUTPUT_BIAS = obias + lbias - obias * lbias
#: Queries without rotary embedding are copied where several groups of them lie between keys and values.
_REGROUPED = Iverson(a > k) * Iverson(kt > 1)
#: With more ranks than key and value heads Megatron-Core gathers the fused projection of all ranks; what q, k and v
#: are views of is that, whole.
_GATHERED = Iverson(Gt(t, k))
_OWN = 1 - _GATHERED
#: Then unfused attention repeats keys and values, unless the rank has one query head.
_UNREPEATED = _GATHERED * Iverson(Eq(a, t))
#: It copies queries, unless one sequence or one head lets them stay views.
_QUERY_VIEW = _GATHERED * (1 - Iverson(b > 1) * (1 - Iverson(Eq(a, t))))
#: Eager attention repeats a rank's single key and value head by a view, which a batch of one sequence keeps.
ONE_HEAD = Iverson(Eq(k, t)) * Iverson(b <= 1)
#: Where queries, keys and values come out of one projection, and where each has its own.
_JOINT, _APART = ("fused", "qkv"), ("separate", "gate_up")
_COPIED, _VIEW = ("copy", "repacked"), ("view",)
#: GPT-NeoX has the parts of each head side by side, so that heads of one token can be views; Phi-3, whose MLP is gated,
#: has all queries first, then all keys and all values.
_OF_NEOX = (*UNGATED, "xielu")


def _qkv() -> tuple[Tensor, ...]:
    at = "qkv"
    return (
        weight("qkv.weight", at, (QKV_FEATURES, HIDDEN_COLUMNS), "megatron_core", "fused projection of q, k and v",
               tokens=_TOKENS, projections=_JOINT),
        weight("q.weight", at, (QUERY_FEATURES, HIDDEN_COLUMNS), "pytorch", "projection of q", tokens=_TOKENS,
               projections=_APART),
        weight("k.weight", at, (KV_FEATURES, HIDDEN_COLUMNS), "pytorch", "projection of k", tokens=_TOKENS,
               projections=_APART),
        weight("v.weight", at, (KV_FEATURES, HIDDEN_COLUMNS), "pytorch", "projection of v", tokens=_TOKENS,
               projections=_APART),
        weight("qkv.bias", at, (QKV_FEATURES,), "qwen2", "bias of the QKV projection", _QKV_BIAS, projections=_JOINT),
        *(weight(f"{name}.bias", at, (features,), "qwen2", f"bias of the projection of {name}", _QKV_BIAS,
                 projections=_APART)
          for name, features in (("q", QUERY_FEATURES), ("k", KV_FEATURES), ("v", KV_FEATURES))),
        saved("qkv.input", at, RESIDUAL, 2, "megatron_core", "input of the QKV projection",
              storage="attention.normed", precision=_LOW, gathered_input=("dropped",), fp8=_TRAINED,
              adapters=_TRAINED),
        saved("qkv.input_gathered", at, (SEQUENCE, BATCH, HIDDEN), 2, "torchtitan",
              "input of the projections of q, k and v, gathered over the tensor-parallel ranks",
              precision=_LOW, gathered_input=("kept",)),
        *quantised("qkv.input", at, RESIDUAL[:2], (HIDDEN, HIDDEN_SCALES), normed=True, adapted=ADAPTED),
        saved("qkv.input_cast", at, RESIDUAL, 2, "pytorch", "bf16 copy of the input", precision=_CAST,
              projections=_JOINT),
        *(saved(f"{name}.input_cast", at, RESIDUAL, 2, "pytorch", f"bf16 copy of the input for {name}",
                precision=_CAST, projections=_APART) for name in ("q", "k", "v")),
        saved("q.weight_cast", at, (HIDDEN, QUERY_FEATURES), 2, "pytorch", "bf16 copy of the q weight",
              precision=_CAST),
        saved("k.weight_cast", at, (HIDDEN, KV_FEATURES), 2, "pytorch", "bf16 copy of the k weight",
              precision=_CAST),
        saved("v.weight_cast", at, (HIDDEN, KV_FEATURES), 2, "pytorch", "bf16 copy of the v weight",
              precision=_CAST),
    )


def _qk_norm() -> tuple[Tensor, ...]:
    return (
        *(row for name, heads, features in (("q_norm", HEADS, QUERY_FEATURES), ("k_norm", KV_HEADS, KV_FEATURES))
          for row in (
              *norm_rows(f"{name}.", name, (SEQUENCE, BATCH, heads), HEAD_DIM, when=qkn, projected=True,
                         qk_norms=("head",)),
              *norm_rows(f"{name}.heads_", name, (SEQUENCE, BATCH, heads), HEAD_DIM, when=qkn, projected=True,
                         scale=features, shifted=False, qk_norms=("heads",)),
              *norm_rows(f"{name}.all_", name, _TOKENS, features, when=qkn, projected=True, qk_norms=("width",)),
          )),
    )


def _rope() -> tuple[Tensor, ...]:
    widths = (("rotary", "", HEAD_DIM), ("partial", "_part", ROTARY_DIM))
    return (
        *(saved(f"rope.{of}_{function}{suffix}", "rope", (SEQUENCE, width), 2, "megatron_core",
                f"bf16 {function} table, made for {of} in every layer", rope=UNFUSED_ROPE, positions=(positions,))
          for positions, suffix, width in widths
          for of in ("q", "k")
          for function in ("cos", "sin")),
        *(saved(f"rope.{function}{suffix}{width}", "rope", (SEQUENCE, size), element, "transformers",
                f"{precision} {function} table of the layer, repeated for pairs", rope=ropes, positions=(share,))
          for share, suffix, size in widths
          for ropes, width, element, precision in ((("repeated", "joined_repeated"), "", 2, "bf16"),
                                                   (("repeated_fp32",), "_fp32", 4, "fp32"))
          for function in ("cos", "sin")),
        *(saved(f"rope.{function}_cast", "rope", (SEQUENCE, HEAD_DIM), 2, "torchtitan",
                f"bf16 {function} table of the layer, cast from that of the stage", rope=("cast",))
          for function in ("cos", "sin")),
    )


def _gathered(name: str, module: str, when: Expr, **more: Any) -> Tensor:
    return saved(name, module, (SEQUENCE, BATCH, ALL_QKV_FEATURES), 2, "megatron_core",
                 "fused projection, gathered from all ranks and kept by views of it", when=when,
                 storage="attention.gathered", **more)


def _in_steps() -> tuple[Tensor, ...]:
    """Return the rows of attention without a kernel, in fp32, and of masks and numbers of heads that layers keep."""
    at = "core_attention"
    return (
        saved("q.scaled", at, QUERY, 4, "pytorch", "fp32 queries, scaled", attention=_STEPS),
        *(row for name, meaning in (("k.scaled", "keys"), ("v.wide", "values")) for row in (
            saved(f"{name}_repeated", at, QUERY, 4, "pytorch", f"fp32 {meaning} repeated for every query head",
                  when=1 - ONE_HEAD, attention=_STEPS),
            saved(f"{name}_one_head", at, KEY, 4, "pytorch", f"fp32 {meaning} of one head, repeated by a view",
                  when=ONE_HEAD, attention=_STEPS),
        )),
        saved("probabilities_of_steps", "softmax", SCORES, 4, "pytorch", "fp32 softmax, multiplied with v",
              attention=_STEPS),
        saved("mask_added", "softmax", (BATCH, SEQUENCE, KEY_SEQUENCE), 2, "pytorch",
              "mask as 16-bit numbers, added to the scores", attention=("sdpa_masked",)),
        saved("picked", at, (), 16, "transformers", "int64 numbers of the heads of keys and of values among all",
              value=("picked",)),
    )


def _core() -> tuple[Tensor, ...]:
    at = "core_attention"
    return (
        saved("q", at, QUERY, 2, "megatron_core", "queries after RoPE", storage="attention.q", positions=_ROTARY,
              attention=(*_KERNELS, *_SCORED)),
        saved("q.unrotated", at, QUERY, 2, "megatron_core", "queries", storage="attention.q", attention=_FLASH,
              value=_COPIED, positions=_UNTURNED),
        saved("q.part", at, QUERY, 2, "megatron_core", "query part of the fused projection, or its copy", when=_OWN,
              storage="attention.q", attention=_FLASH, value=_VIEW, positions=_UNTURNED),
        saved("q.scored", at, QUERY, 2, "megatron_core", "query part of the fused projection, or its copy",
              when=1 - _QUERY_VIEW, storage="attention.q", attention=_SCORED, positions=_UNTURNED),
        saved("q.scored_kv_part", at, KEY, 4, "megatron_core",
              "key and value parts of the fused projection, kept by q while k and v are copies",
              when=Iverson(Eq(k, t)) * Iverson(a > k) * Iverson(b <= 1), attention=_MEGATRON_SCORED,
              positions=_UNTURNED),
        saved("k", at, KEY, 2, "megatron_core", "keys after RoPE",
              storage="attention.k", attention=_FLASH, positions=_ROTARY),
        saved("k.unrotated", at, KEY, 2, "megatron_core", "keys",
              storage="attention.k", attention=_FLASH, value=_COPIED, positions=_UNTURNED),
        saved("k.part", at, KEY, 2, "megatron_core", "key part of the fused projection", when=_OWN,
              storage="attention.k", attention=_FLASH, value=_VIEW, positions=_UNTURNED),
        saved("v", at, KEY, 2, "megatron_core", "values", attention=_FLASH, value=_COPIED),
        saved("q.kv_part", at, KEY, 4, "nanotron", "keys and values before RoPE, in one memory with q",
              when=Iverson(Eq(a, k)), attention=_FLASH, value=("repacked",)),
        saved("v.q_part", at, QUERY, 2, "megatron_core", "query part of the fused projection, kept by v",
              when=_OWN, storage="attention.fused_q", attention=_FLASH, value=_VIEW, positions=_ROTARY),
        saved("v.kv_part", at, (SEQUENCE, BATCH, KV_HEADS, HEAD_DIM), 4, "megatron_core",
              "key and value parts of the fused projection, kept by v",
              when=_OWN, storage="attention.fused_kv", attention=_FLASH, value=_VIEW, positions=_ROTARY),
        saved("v.part", at, KEY, 2, "megatron_core", "value part of the fused projection, of which q and k are parts",
              when=_OWN, attention=_FLASH, value=_VIEW, positions=_UNTURNED),
        saved("kv.q_part", at, QUERY, 2, "megatron_core",
              "query part of the fused projection, kept by k and v while q is a copy", when=_REGROUPED,
              storage="attention.fused_q", attention=_FLASH, value=_VIEW, positions=_UNTURNED),
        _gathered("v.gathered", at, _GATHERED, attention=_FLASH, value=_VIEW),
        _gathered("v.gathered_unrepeated", at, _UNREPEATED, attention=_MEGATRON_SCORED, positions=_ROTARY),
        _gathered("q.gathered", at, _QUERY_VIEW, attention=_MEGATRON_SCORED, positions=_UNTURNED),
        saved("logsumexp", at, (SEQUENCE, BATCH, HEADS), 4, "dao2023",
              "fp32 logarithm of the softmax denominators", attention=_KERNELS),
        saved("generator_state", at, (), 16, "dao2023", "seed and offset of the random numbers of dropout",
              when=adrop, attention=_FLASH),
        saved("k.expanded", at, QUERY, 2, "megatron_core", "keys repeated for every query head",
              attention=_MEGATRON_SCORED, positions=_ROTARY),
        saved("k.expanded_part", at, QUERY, 2, "megatron_core", "keys repeated for every query head",
              when=1 - _UNREPEATED, attention=_MEGATRON_SCORED, positions=_UNTURNED),
        saved("v.expanded", at, QUERY, 2, "megatron_core", "values repeated for every query head",
              when=1 - _UNREPEATED, attention=_MEGATRON_SCORED),
        saved("k.repeated", at, QUERY, 2, "transformers", "keys repeated for every query head", when=1 - ONE_HEAD,
              attention=("eager", "sdpa_masked"), precision=_LOW),
        saved("k.one_head", at, KEY, 2, "transformers", "keys of one head, repeated by a view", when=ONE_HEAD,
              attention=("eager",), precision=_LOW),
        saved("k.repeated_cast", at, QUERY, 2, "transformers", "bf16 copy of the repeated keys",
              attention=("eager",), precision=_CAST),
        saved("v.repeated", at, QUERY, 2, "transformers", "values repeated for every query head", when=1 - ONE_HEAD,
              attention=("eager", "sdpa_masked")),
        saved("v.one_head", at, KEY, 2, "transformers", "values of one head, repeated by a view", when=ONE_HEAD,
              attention=("eager",)),
        *_in_steps(),
        # Nothing is repeated with as many keys as queries: v is a view, beside rotated queries and keys.
        saved("v.unexpanded_q_part", at, QUERY, 2, "megatron_core", "query part of the fused projection, kept by v",
              when=Iverson(Eq(a, k)), attention=_MEGATRON_SCORED, positions=_ROTARY),
        saved("v.unexpanded_k_part", at, KEY, 2, "megatron_core", "key part of the fused projection, kept by v",
              when=Iverson(Eq(a, k)), attention=_MEGATRON_SCORED, positions=_ROTARY),
        saved("v.batched_part", at, QUERY, 4, "transformers",
              "query and key parts of the fused projection, kept by v, which stays a view for b = 1 or a = 1",
              when=(1 - Iverson(b > 1) * Iverson(a > 1) * Iverson(s > 1)) * Iverson(Eq(a, k)), attention=("eager",),
              value=_VIEW, rope=_JOINED, mlp=_OF_NEOX),
        saved("v.stacked_part", at, QUERY, 4, "transformers",
              "query and key parts of the fused projection, kept by v, which stays a view for b = 1 or a = 1",
              when=(1 - Iverson(b > 1) * Iverson(a > 1)) * Iverson(Eq(a, k)), attention=("eager",),
              value=_VIEW, rope=_JOINED, mlp=GATED),
        saved("v.one_head_q_part", at, QUERY, 2, "transformers",
              "query part of the fused projection, kept by v of one head, repeated by a view",
              when=ONE_HEAD * Iverson(a > 1), attention=("eager",), value=_VIEW, rope=_JOINED),
        saved("v.one_head_k_part", at, KEY, 2, "transformers",
              "key part of the fused projection, kept by v of one head, repeated by a view",
              when=ONE_HEAD * Iverson(a > 1), attention=("eager",), value=_VIEW, rope=_JOINED),
        saved("scores_bounded", "softmax", SCORES, 2, "transformers", "bf16 tanh of the scores", when=acap,
              attention=("eager",)),
        weight("sinks", at, (HEADS,), "gpt_oss", "sink of every head", tokens=(), sinks=_SUNK),
        saved("sink.chosen", "softmax", (BATCH, HEADS, SEQUENCE), 8, "transformers",
              "int64 places of the largest scores, which are subtracted", attention=("eager",), sinks=_SUNK),
        saved("sink.probabilities", "softmax", SCORES_AND_SINK, 2, "transformers",
              "bf16 softmax of the scores and the sink, of which a view is multiplied with v", attention=("eager",),
              sinks=_SUNK),
        saved("sink.probabilities_fp32", "softmax", SCORES_AND_SINK, 4, "megatron_core",
              "fp32 softmax of the scores and the sink", attention=("unfused",), sinks=_SUNK),
        saved("probabilities_fp32", "softmax", SCORES, 4, "transformers", "softmax of the scores",
              attention=("eager", "unfused"), softmax=("fp32",), sinks=_PLAIN),
        # A softmax that does not ask for fp32 is in fp32 under autocast all the same.
        saved("probabilities_fp32_cast", "softmax", SCORES, 4, "pytorch", "softmax of the scores under autocast",
              attention=("eager",), softmax=("low",), precision=_CAST),
        saved("probabilities_bf16", "softmax", SCORES, 2, "transformers",
              "bf16 softmax of the scores, multiplied with v where there is no dropout", when=adrop,
              attention=("eager",), softmax=("low",), precision=_LOW),
        saved("probabilities", at, SCORES, 2, "transformers", "bf16 softmax after dropout, multiplied with v",
              attention=("eager",), sinks=_PLAIN, precision=_ROUNDED),
        saved("probabilities_of_megatron", at, SCORES, 2, "megatron_core",
              "bf16 softmax after dropout, multiplied with v", attention=("unfused",)),
        saved("window_mask", "softmax", (SEQUENCE, KEY_SEQUENCE), 1, "megatron_core",
              "bool mask of the window, made anew in every layer", attention=("unfused",), window=("sliding",)),
        saved("probabilities_16", "softmax", SCORES, 2, "megatron_core",
              "16-bit softmax, multiplied with v where there is no dropout", attention=_SOFTMAX_16),
        saved("probabilities_dropped", at, SCORES, 2, "megatron_core", "softmax after dropout, multiplied with v",
              when=adrop, attention=_SOFTMAX_16),
        saved("dropout_mask", at, SCORES, 1, "megatron_core", "bool mask of the dropped probabilities",
              when=adrop, attention=_SCORED),
        saved("context", at, QUERY, 2, "megatron_core", "output of core attention",
              storage="attention.context", attention=_KERNELS),
        saved("context.of_heads", at, QUERY, 2, "transformer_engine",
              "output of core attention before heads are exchanged back for tokens", when=Iverson(c > 1),
              attention=_FLASH, context=("all_to_all",)),
        saved("context.of_halves", at, QUERY, 2, "transformer_engine",
              "outputs of core attention for both halves of the rank's tokens, before they are joined",
              when=Iverson(c > 1), attention=_FLASH, context=("all_gather",)),
        # The recompute of core attention keeps its arguments, and v drags the fused projection along.
        saved("checkpoint.q", "checkpoint", QUERY, 2, "megatron_core", "queries, kept as an input",
              storage="attention.q", checkpoint="core_attention", positions=_ROTARY),
        saved("checkpoint.k", "checkpoint", KEY, 2, "megatron_core", "keys, kept as an input",
              storage="attention.k", checkpoint="core_attention", positions=_ROTARY),
        saved("checkpoint.q_part", "checkpoint", QUERY, 2, "megatron_core", "queries, kept as an input", when=_OWN,
              storage="attention.q", checkpoint="core_attention", positions=_UNTURNED),
        saved("checkpoint.k_part", "checkpoint", KEY, 2, "megatron_core", "keys, kept as an input", when=_OWN,
              storage="attention.k", checkpoint="core_attention", positions=_UNTURNED),
        _gathered("checkpoint.gathered", "checkpoint", _GATHERED, checkpoint="core_attention"),
        saved("checkpoint.v.q_part", "checkpoint", QUERY, 2, "megatron_core",
              "query part of the fused projection, kept by v",
              when=_OWN, storage="attention.fused_q", checkpoint="core_attention", positions=_ROTARY),
        saved("checkpoint.v.kv_part", "checkpoint", KEY, 4, "megatron_core",
              "key and value parts of the fused projection, kept by v",
              when=_OWN, storage="attention.fused_kv", checkpoint="core_attention", positions=_ROTARY),
        saved("checkpoint.v.part", "checkpoint", KEY, 2, "megatron_core",
              "value part of the fused projection, of which q and k are parts",
              when=_OWN, checkpoint="core_attention", positions=_UNTURNED),
        saved("checkpoint.kv.q_part", "checkpoint", QUERY, 2, "megatron_core",
              "query part of the fused projection, kept by k and v while q is a copy", when=_REGROUPED,
              storage="attention.fused_q", checkpoint="core_attention", positions=_UNTURNED),
        saved("checkpoint.mask_type", "checkpoint", (), 4, "megatron_core",
              "int32 code of the mask, passed as a tensor", checkpoint="core_attention"),
    )


def _block_mask() -> tuple[Tensor, ...]:
    """Return the mask of FlexAttention by blocks, which every layer makes once for a length and never frees."""
    return tuple(
        Tensor(f"block_mask.{name}", "core_attention", Role.BUFFER, shape, 16, Lifetime.ONCE, "pytorch",
               f"int32 {meaning}, cut by the mask and whole", options={"attention": ("flex",)})
        for name, shape, meaning in (
            ("counts", (MASK_BLOCKS,), "numbers of blocks of keys for each of queries, and the other way round"),
            ("places", (MASK_BLOCKS, MASK_BLOCKS), "places of these blocks"),
        )
    )


def _output() -> tuple[Tensor, ...]:
    at = "o_proj"
    return (
        weight("o_proj.weight", at, (HIDDEN_COLUMNS, QUERY_FEATURES), "megatron_core", "output projection",
               tokens=_TOKENS),
        weight("o_proj.bias", at, (HIDDEN_PART,), "megatron_core", "bias of the output projection, on every rank",
               _OUTPUT_BIAS),
        saved("o_proj.input", at, QUERY, 2, "megatron_core", "input of the output projection",
              storage="attention.context", attention=("flash", "sdpa", "sdpa_masked", "flex"),
              fp8=AGAIN, **_READ),
        saved("o_proj.input_sequence_first", at, QUERY, 2, "transformer_engine",
              "contiguous copy of FlashAttention's batch-first output, where Transformer Engine chooses that",
              when=Iverson(b > 1) * fcopy, attention=("flash",), projections=("fused",), rope=MEGATRON_ROPE,
              fp8=AGAIN, **_READ),
        saved("o_proj.input_fp8", at, QUERY, 1, "transformer_engine",
              "FP8 input of the output projection; other recipes keep the 16-bit one, which attention keeps anyway",
              fp8=("delayed",)),
        saved("o_proj.input_scale", at, (), 4, "transformer_engine", "fp32 inverse scale of the input",
              fp8=("delayed",)),
        saved("o_proj.input_copy", at, QUERY, 2, "pytorch",
              "contiguous copy of the batch-first output; for b = 1 it is the output itself",
              when=Iverson(b > 1), attention=("flash_bshd",), value=("copy", "view"), **_READ),
        saved("o_proj.input_same", at, QUERY, 2, "pytorch", "input of the output projection at b = 1",
              storage="attention.context", when=Iverson(b <= 1), attention=("flash_bshd",), value=("copy", "view"),
              **_READ),
        saved("o_proj.input_all_reduce", at, QUERY, 2, "nanotron",
              "contiguous copy of the batch-first output that all-reduce mode makes; the asynchronous linear layer of"
              " reduce-scatter mode keeps the output itself", when=Iverson(b > 1) * Iverson(t > 1) * (1 - sp),
              attention=("flash_bshd",), value=("repacked",)),
        saved("o_proj.input_of_heads", at, QUERY, 2, "transformers",
              "copy of the output, in which one head lies after another as in the joined queries",
              when=Iverson(a > 1) * Iverson(s > 1), attention=("sdpa",), rope=_JOINED, **_READ),
        saved("o_proj.input_transposed", at, QUERY, 2, "transformers",
              "contiguous copy of the transposed output",
              attention=(*_SCORED, *_STEPS), **_READ),
        saved("o_proj.weight_cast", at, (HIDDEN, QUERY_FEATURES), 2, "pytorch",
              "bf16 copy of the output weight", precision=_CAST),
    )


def _work() -> tuple[Work, ...]:
    rotary: Any = {"positions": _ROTARY}
    return (
        *column_parallel("qkv", "qkv"),
        Transfer("qkv.gathered", "qkv", Ranks.TENSOR, (SEQUENCE, BATCH, ALL_QKV_FEATURES), 2, _GATHERED, _GATHERED,
                 "megatron_core", "fused projection gathered from all ranks, its gradient summed",
                 options={"projections": ("fused",), "value": ("copy", "view")}),
        *norm_work("q_norm", "q_norm", QUERY, qkn), *norm_work("k_norm", "k_norm", KEY, qkn),
        Stream("rope.tables", "rope", (SEQUENCE, HEAD_DIM), 88, 0, "megatron_core",
               "cosines and sines of the angles, scaled and cast, for queries and for keys", 12,
               options={"rope": UNFUSED_ROPE, **rotary}),
        *(Stream(f"rope.{of}_{name}", "rope", shape, forward, backward, source, f"{of} rotated: {meaning}", kernels,
                 options={"rope": (name,), **rotary})
          for of, shape in (("q", QUERY), ("k", KEY))
          for name, forward, backward, kernels, source, meaning in (
              *((name, 4, 4, 1, "transformer_engine", "one kernel") for name in FUSED_ROPE),
              ("cached", 4, 4, 1, "nanotron", "one kernel"),
              *((name, 20, 28, 5, "transformers", "halves swapped, products and their sum")
                for name in ("shared", "shared_first", "shared_half", "shared_twice", "shared_fp32",
                             "shared_fp32_twice", "repeated", "repeated_fp32", "cast")),
              *((name, 4, 4, 1, "transformers", "turned and other part joined") for name in _JOINED),
              *((name, 24, 28, 6, "megatron_core", "halves swapped, products and their sum, and a copy of it")
                for name in UNFUSED_ROPE),
              ("complex", 20, 20, 3, "torchtitan", "fp32 copy, complex product and cast"),
          )),
        *(Stream(f"rope.{of}_turned", "rope", (SEQUENCE, BATCH, heads, ROTARY_DIM if share == "partial" else HEAD_DIM),
                 20, 28, "transformers", f"part of {of} rotated: halves swapped, products and their sum", 5,
                 options={"rope": _JOINED, "positions": (share,)})
          for of, heads in (("q", HEADS), ("k", KV_HEADS)) for share in _ROTARY),
        *attention_work(HEAD_DIM, HEAD_DIM), *context_exchange(HEAD_DIM, 4),
        *row_parallel("o_proj", "o_proj"), *residual_work("attention_residual"),
        *grid_transfers("qkv", QKV_FEATURES, "o_proj", QUERY_FEATURES),
    )


COMPONENTS = (
    Component(
        "attention", "Attention with grouped queries", 30, Place.LAYER,
        (*_qkv(), *_qk_norm(), *_rope(), *_core(), *_block_mask(), *_output()),
        note="The width of all queries, A = a d, need not be h. With t > k every rank keeps one key and one"
        " value head, while the projection weights stay exactly 1/t.",
        options={"heads": ("grouped",)},
        work=_work(),
    ),
)
