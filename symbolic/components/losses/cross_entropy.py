"""Cross entropy: what it keeps for the backward pass and what lives only while it runs."""

from __future__ import annotations

from typing import Any

from sympy import Integer

from ...choices import MEGATRON_PEAKS, OF_WORDS, VOCAB_ACTORS
from ...dimensions import (
    BATCH,
    PAIRS,
    SCORE,
    SEQUENCE,
    SHIFTED_SEQUENCE,
    TENSOR_RANKS,
    VOCAB,
    WHOLE_VOCAB,
)
from ...functions import Iverson
from ...ledger import Component, Lifetime, Place, Role, Tensor, saved, transient
from ...parameters import symbols
from ...work import NONE, Ranks, Stream, Transfer, Work
from ...work_rows import over_vocabulary
from .compiled import compiled_rows, compiled_work
from .entropies import entropy_rows, entropy_work
from .held import held_rows
from .openrlhf import openrlhf_rows, openrlhf_work
from .policies import policy_rows, policy_work
from .preference import preference_rows, preference_work
from .supervised import supervised_rows, supervised_work
from .torchtune import torchtune_rows, torchtune_work
from .vocab_parallel_policies import vocab_policy_rows, vocab_policy_work

b, t, lcap = symbols("b t lcap")
_LOGITS = (SEQUENCE, BATCH, VOCAB)
_WHOLE_LOGITS = (SEQUENCE, BATCH, WHOLE_VOCAB)
_TOKENS = (SEQUENCE, BATCH)
_AFTER, _FORWARD, _BACKWARD = ("after_forward",), ("loss_forward",), ("loss_backward",)
_ALL = (*_AFTER, *_FORWARD, *_BACKWARD)
_HUGGINGFACE = ("huggingface", "huggingface_freed")
_HEAD = ("head_backward",)
#: The loss frees it before the backward pass of the head.
_BOUNDED = saved("logits_bounded", "loss", _LOGITS, 2, "transformers", "bf16 tanh of the logits",
                 lifetime=Lifetime.ONCE, when=lcap, loss=OF_WORDS)


def _vocab_parallel() -> tuple[Tensor, ...]:
    """Megatron-Core's own kernels; the fused ones keep an fp32 copy of the logits beside the softmax."""
    on: Any = {"loss": ("vocab_parallel", "native_fused")}
    eager: Any = {"loss": ("vocab_parallel",)}
    compiled: Any = {"loss": ("native_fused",)}
    src = "megatron_core"
    return (
        saved("softmax", "loss", _LOGITS, 4, src, "fp32 softmax of the rank's vocabulary",
              lifetime=Lifetime.ONCE, **on),
        saved("masked_target", "loss", _TOKENS, 8, src, "int64 labels relative to the rank's vocabulary",
              lifetime=Lifetime.ONCE, **on),
        saved("target_mask", "loss", _TOKENS, 1, src, "bool mask of labels of other ranks",
              lifetime=Lifetime.ONCE, **on),
        transient("logits", "loss", _LOGITS, 2, src, "bf16 logits, held by the caller", _FORWARD, **on),
        transient("logits_max", "loss", _TOKENS, 4, src, "fp32 maxima of the logits", _FORWARD, **on),
        transient("row_index", "loss", _TOKENS, 8, src, "int64 row numbers for the lookup", _FORWARD, **eager),
        transient("predicted", "loss", _TOKENS, 4, src, "fp32 logits of the labels", _FORWARD, **eager),
        transient("predicted_copy", "loss", _TOKENS, 4, src, "contiguous copy of them", _FORWARD, **eager),
        transient("predicted_and_sums", "loss", _TOKENS, 8, "megatron_training",
                  "fp32 logits of the labels and sums, in one tensor", _FORWARD, **compiled),
        transient("logits_copy", "loss", _LOGITS, 4, "megatron_training",
                  "fp32 logits, an output of the first compiled kernel that the second does not overwrite", _FORWARD,
                  **compiled),
        transient("value", "loss", (), 4, src, "fp32 mean loss", _AFTER, **on),
    )


def _transformer_engine() -> tuple[Tensor, ...]:
    on: Any = {"loss": ("te_fused", "te_fused_fp32")}
    newer: Any = {"loss": ("te_fused_fp32",)}
    src = "transformer_engine"
    return (
        saved("logits_gradient", "loss", _LOGITS, 2, src, "bf16 logits, overwritten by their gradient",
              lifetime=Lifetime.ONCE, loss=("te_fused",)),
        saved("logits_gradient_fp32", "loss", _LOGITS, 4, src, "fp32 gradient of the logits",
              lifetime=Lifetime.ONCE, **newer),
        transient("held_logits_bf16", "loss", _LOGITS, 2, src, "bf16 logits, held by the caller", _FORWARD, **newer),
        transient("losses", "loss", _TOKENS, 4, src, "fp32 loss of every token", _FORWARD, **on),
        transient("statistics", "loss", _TOKENS, 12, src, "fp32 maxima, sums and logits of the labels", _FORWARD,
                  **on),
        transient("gathered_statistics", "loss", (*_TOKENS, TENSOR_RANKS), 12, src, "those of all ranks", _FORWARD,
                  when=Iverson(t > 1), **on),
    )


def _megatron_backward() -> tuple[Tensor, ...]:
    """Return the bf16 gradient of the logits, which the head takes: made from an fp32 one where the loss has that."""
    src = "megatron_training"
    fp32 = ("vocab_parallel", "native_fused", "te_fused_fp32")
    return (
        transient("cast_gradient", "loss", _LOGITS, 2, src, "bf16 gradient of the logits, beside the fp32 one",
                  _BACKWARD, loss=fp32, peak=MEGATRON_PEAKS),
        transient("head_output_gradient", "loss", _LOGITS, 2, src, "bf16 gradient of the logits", _HEAD,
                  loss=(*fp32, "te_fused", *VOCAB_ACTORS), peak=MEGATRON_PEAKS),
    )


def _gathered() -> tuple[Tensor, ...]:
    """fp32 logits of the whole vocabulary on every tensor-parallel rank."""
    on: Any = {"loss": ("gathered",)}
    src = "scaling"
    return (
        saved("whole_log_softmax", "loss", _WHOLE_LOGITS, 4, src, "fp32 log-softmax", lifetime=Lifetime.ONCE, **on),
        transient("whole_logits", "loss", _WHOLE_LOGITS, 2, src, "bf16 logits, held by the pipeline's buffer", _ALL,
                  **on),
        transient("whole_logits_fp32", "loss", _WHOLE_LOGITS, 4, src, "fp32 copy of the logits", _FORWARD, **on),
        transient("whole_gradient_log_softmax", "loss", _WHOLE_LOGITS, 4, src, "fp32 gradient of the log-softmax",
                  _BACKWARD, **on),
        transient("whole_gradient_logits", "loss", _WHOLE_LOGITS, 4, src, "fp32 gradient of the logits", _BACKWARD,
                  **on),
    )


def _torch_float() -> tuple[Tensor, ...]:
    """fp32 logits; the Hugging Face loss is the same with labels and logits of its own."""
    on: Any = {"loss": ("float", "torchtune", *_HUGGINGFACE)}
    own: Any = {"loss": _HUGGINGFACE}
    src, hf = "pytorch", "transformers"
    return (
        saved("log_softmax", "loss", _LOGITS, 4, src, "fp32 log-softmax", lifetime=Lifetime.ONCE, **on),
        saved("total_weight", "loss", (), 4, src, "fp32 number of counted labels",
              lifetime=Lifetime.ONCE, **on),
        Tensor("labels", "loss", Role.INPUT, _TOKENS, 8, Lifetime.ONCE, src, "int64 labels, an input",
               options={"loss": ("float", "bf16", "torchtune", "torchtune_compiled")}),
        # At b = 1 the shifted labels are contiguous already, so they keep the padded ones alive instead.
        saved("shifted_labels", "loss", _TOKENS, 8, hf, "int64 labels shifted by one token",
              lifetime=Lifetime.SITE, sites=(*_AFTER, *_FORWARD), when=Iverson(b > 1), **own),
        saved("padded_labels_kept", "loss", (SHIFTED_SEQUENCE, BATCH), 8, hf,
              "int64 labels with one more, of which the shifted ones are a view",
              lifetime=Lifetime.SITE, sites=(*_AFTER, *_FORWARD), when=Iverson(b <= 1), **own),
        transient("padded_labels", "loss", (SHIFTED_SEQUENCE, BATCH), 8, hf,
                  "int64 labels with one more, about to be shifted", _FORWARD, when=Iverson(b > 1), **own),
        *held_rows("", _LOGITS, 2, hf, "bf16 logits in the returned object", "huggingface"),
        transient("logits_in_model", "loss", _LOGITS, 2, hf, "bf16 logits, about to be returned", _FORWARD,
                  loss=("huggingface_freed",)),
        transient("held_logits", "loss", _LOGITS, 2, src, "bf16 logits, held by the caller", _FORWARD,
                  loss=("float",)),
        transient("logits_fp32", "loss", _LOGITS, 4, src, "fp32 copy of the logits", _FORWARD,
                  precision=("mixed", "bf16", "fp16", "autocast"), **on),
        transient("gradient_log_softmax", "loss", _LOGITS, 4, src, "fp32 gradient of the log-softmax",
                  _BACKWARD, **on),
        transient("gradient_logits", "loss", _LOGITS, 4, src, "fp32 gradient of the logits",
                  _BACKWARD, **on),
        transient("value_fp32", "loss", (), 4, src, "fp32 mean loss", _ALL, **on),
    )


def _torch_bf16() -> tuple[Tensor, ...]:
    on: Any = {"loss": ("bf16",)}
    src = "pytorch"
    return (
        saved("log_softmax_bf16", "loss", _LOGITS, 2, src, "bf16 log-softmax", lifetime=Lifetime.ONCE, **on),
        saved("total_weight_bf16", "loss", (), 2, src, "bf16 number of counted labels",
              lifetime=Lifetime.ONCE, **on),
        transient("logits_bf16", "loss", _LOGITS, 2, src, "bf16 logits, held by the caller", _FORWARD, **on),
        transient("gradient_log_softmax_bf16", "loss", _LOGITS, 2, src, "bf16 gradient of the log-softmax", _BACKWARD,
                  **on),
        transient("gradient_logits_bf16", "loss", _LOGITS, 2, src, "bf16 gradient of the logits", _BACKWARD, **on),
        transient("value_bf16", "loss", (), 2, src, "bf16 mean loss", (*_AFTER, *_FORWARD), **on),
    )


def _scores() -> tuple[Tensor, ...]:
    """Scores of last tokens, and where they lie among those of all tokens; of pairs their differences (TRL's rewards).

    A classifier of several labels has as many scores of a sequence, of which one is counted.
    """
    on: Any = {"loss": ("reward", "scores")}
    src = "trl"
    return (
        saved("places", "loss", (BATCH,), 16, src, "int64 numbers of sequences and of their last tokens",
              lifetime=Lifetime.ONCE, **on),
        saved("differences", "loss", (PAIRS,), 2, src, "bf16 difference of the two scores of a pair",
              lifetime=Lifetime.ONCE, loss=("reward",)),
        saved("compared_scores", "loss", (BATCH,), 2, "transformers", "bf16 scores, compared with labels",
              lifetime=Lifetime.ONCE, loss=("scores",)),
        transient("last_scores", "loss", (BATCH,), 2, src, "bf16 scores in the returned object", _AFTER,
                  loss=("reward",)),
        transient("value_of_pairs", "loss", (), 2, src, "bf16 mean loss", _ALL, loss=("reward",)),
        transient("value_of_labels", "loss", (), 2, "transformers", "bf16 mean loss", _ALL, loss=("scores",)),
        transient("gradient_scores", "loss", (SEQUENCE, BATCH, SCORE), 2, src,
                  "bf16 gradient of all scores, zeros but for the last tokens", _BACKWARD, **on),
    )


def _dtensor() -> tuple[Tensor, ...]:
    """PyTorch's cross entropy on fp32 logits; with TP every rank has its part of the vocabulary (loss_parallel)."""
    on: Any = {"loss": ("dtensor",)}
    src = "torchtitan"
    whole, sharded = Iverson(t <= 1), Iverson(t > 1)
    return (
        saved("log_softmax_shard", "loss", _LOGITS, 4, src, "fp32 log-softmax of the rank's vocabulary",
              lifetime=Lifetime.ONCE, **on),
        Tensor("labels_given", "loss", Role.INPUT, _TOKENS, 8, Lifetime.ONCE, src, "int64 labels, an input",
               options={**on, "pipeline": ("own",)}),
        transient("logits_shard", "loss", _LOGITS, 2, src, "bf16 logits, held by the trainer", _FORWARD, **on),
        transient("logits_shard_fp32", "loss", _LOGITS, 4, src, "fp32 copy of the logits", _FORWARD, **on),
        transient("logits_shifted", "loss", _LOGITS, 4, src, "fp32 logits less their maximum", _FORWARD,
                  when=sharded, **on),
        transient("shard_statistics", "loss", _TOKENS, 12, src,
                  "fp32 sum of exponentials before and after the reduction, and its logarithm", _FORWARD,
                  when=sharded, **on),
        transient("scalars", "loss", (), 8, src, "fp32 loss and number of labels, later the gradient of the loss",
                  _ALL, when=whole, **on),
        transient("scalars_after", "loss", (), 8, src, "fp32 loss and number of labels", _AFTER, when=sharded, **on),
        transient("scalars_backward", "loss", (), 12, src, "fp32 loss, its gradient and the number of labels",
                  _BACKWARD, when=sharded, **on),
        transient("gradient_shard", "loss", _LOGITS, 8, src, "fp32 gradients of log-softmax and of logits",
                  _BACKWARD, **on),
        transient("exponentials", "loss", _LOGITS, 4, src, "fp32 exponentials of the log-softmax", _BACKWARD,
                  when=sharded, **on),
        transient("label_masks", "loss", _TOKENS, 33, src, "labels of this rank, their masks, positions and gradients",
                  _BACKWARD, when=sharded, **on),
    )


def _nanotron() -> tuple[Tensor, ...]:
    """Nanotron's cross entropy on the rank's vocabulary: the softmax becomes the gradient."""
    on: Any = {"loss": ("nanotron",)}
    src = "nanotron"
    return (
        saved("softmax_shard", "loss", _LOGITS, 4, src, "fp32 softmax of the rank's vocabulary, later the gradient",
              lifetime=Lifetime.ONCE, **on),
        saved("shard_labels", "loss", _TOKENS, 8, src, "int64 labels relative to the rank's vocabulary",
              lifetime=Lifetime.ONCE, **on),
        saved("shard_mask", "loss", _TOKENS, 1, src, "bool mask of labels of other ranks",
              lifetime=Lifetime.ONCE, **on),
        # The bf16 logits are a local of the model's forward pass and gone when the loss starts.
        transient("shard_logits_fp32", "loss", _LOGITS, 4, src, "fp32 copy of the logits, held by the caller", _FORWARD,
                  **on),
        transient("shard_gradient", "loss", _LOGITS, 2, src, "bf16 gradient of the logits", _HEAD, **on),
        transient("given_labels", "loss", _TOKENS, 8, src, "int64 labels, an input", _FORWARD, **on),
        transient("transposed_labels", "loss", _TOKENS, 8, src, "contiguous copy of the transposed labels", _FORWARD,
                  when=Iverson(b > 1), **on),
        transient("given_masks", "loss", _TOKENS, 2, src, "bool masks of tokens and labels, inputs", _FORWARD, **on),
        transient("shard_rows", "loss", _TOKENS, 8, src, "int64 row numbers for the lookup", _FORWARD, **on),
        transient("shard_values", "loss", _TOKENS, 20, src,
                  "fp32 maxima, logits of the labels, sums of exponentials, their logarithms and losses", _FORWARD,
                  **on),
    )


def _exchanges() -> tuple[Work, ...]:
    """Maxima, sums of exponentials and logits of the labels, summed over ranks in fp32; or all logits gathered."""
    return tuple(over_vocabulary(
        Transfer(f"{kernels[0]}.statistics", "loss", Ranks.TENSOR, shape, size, Integer(passes), NONE, source, meaning,
                 options={"loss": kernels})
        for kernels, shape, size, passes, source, meaning in (
            (("vocab_parallel",), _TOKENS, 4, 6, "megatron_core", "three numbers of every token, summed one by one"),
            (("nanotron",), _TOKENS, 4, 6, "nanotron", "three numbers of every token, summed one by one"),
            (("verl_megatron", "nemo_rl"), _TOKENS, 4, 6, "megatron_core", "three numbers of every token, one by one"),
            (("verl_megatron_entropy",), _TOKENS, 4, 12, "verl", "three numbers of every token twice, one by one"),
            (("dtensor", "dtensor_compiled"), _TOKENS, 4, 6, "torchtitan",
             "three numbers of every token, summed one by one"),
            (("native_fused",), _TOKENS, 6, 4, "megatron_training", "maxima, then two numbers of every token at once"),
            (("te_fused", "te_fused_fp32"), (*_TOKENS, TENSOR_RANKS), 12, 1, "transformer_engine",
             "three numbers of every token, gathered"),
            (("gathered",), _WHOLE_LOGITS, 2, 1, "scaling", "bf16 logits of all ranks"),
        )
    ))


def loss_work() -> tuple[Work, ...]:
    """Return the memory traffic of the logits: casts, maxima, exponentials, sums and gradients, fused or not."""
    of_policies = policy_work() + entropy_work() + openrlhf_work() + vocab_policy_work()
    of_others = compiled_work() + supervised_work() + preference_work() + torchtune_work()
    return _exchanges() + of_others + of_policies + tuple(
        Stream(f"{kernels[0]}.steps", "loss", shape, forward, backward, source, meaning, count,
               options={"loss": kernels})
        for kernels, shape, forward, backward, count, source, meaning in (
            (("vocab_parallel",), _LOGITS, 38, 14, 8, "megatron_core", "fp32 copy, maximum, exponentials, quotients"),
            (("native_fused",), _LOGITS, 20, 14, 4, "megatron_training", "the same in compiled kernels"),
            (("te_fused", "te_fused_fp32"), _LOGITS, 6, 4, 2, "transformer_engine", "statistics, then the gradient"),
            (("float", "torchtune", *_HUGGINGFACE), _LOGITS, 14, 22, 3, "pytorch",
             "fp32 copy and log-softmax; gradients of both, and a cast"),
            (("bf16",), _LOGITS, 4, 8, 2, "pytorch", "bf16 log-softmax and its gradient"),
            (("dtensor",), _LOGITS, 26, 34, 6, "torchtitan", "fp32 copy and sharded log-softmax; its gradient, a cast"),
            (("nanotron",), _LOGITS, 38, 14, 8, "nanotron", "fp32 copy, maximum, exponentials and quotients"),
            (("gathered",), _WHOLE_LOGITS, 14, 22, 3, "scaling", "fp32 copy of all logits and log-softmax; gradients"),
        )
    )


COMPONENTS = (
    Component(
        "loss", "Cross entropy loss", 90, Place.LAST,
        (_BOUNDED, *_vocab_parallel(), *_transformer_engine(), *_megatron_backward(), *_torch_float(), *_torch_bf16(),
         *_gathered(), *preference_rows(), *supervised_rows(), *_scores(), *policy_rows(), *entropy_rows(),
         *openrlhf_rows(), *vocab_policy_rows(), *torchtune_rows(), *_dtensor(), *compiled_rows(), *_nanotron()),
        note="Counted once on the last stage, not for every micro-batch in flight.",
        work=loss_work(),
    ),
)
