"""Losses of preference training on logits of all tokens: LLaMA-Factory's, those of TRL 1.9, and ms-swift's.

DPO, ORPO, CPO and SimPO train on pairs, KTO on single answers, beside other answers that have log-probabilities alone.
ORPO and CPO of TRL, which ms-swift has too, add a cross entropy of the better sequences. KTO of TRL copies logits of
the better answers, and of the worse: the most is where all of a micro-batch are of one kind.

Accelerate's mixed precision makes fp32 of a model's logits as they are returned; with DeepSpeed they stay in 16 bits.
Of fp32 logits TRL's function keeps the logits themselves and a logarithm of their sum; of 16-bit ones it keeps a
log-softmax, a sequence at a time. A reference, a copy or the frozen weights beside adapters, makes logits of its own
while those of the policy are kept. Its rows stand with adapters also where its log-probabilities were computed before.
"""

from __future__ import annotations

from typing import Any

from ...choices import ADAPTED
from ...dimension import Dimension
from ...dimensions import (
    ALL_SUM_GRADIENTS,
    BATCH,
    CAST_ROWS,
    CHOSEN_ROWS,
    ENTROPY_ROWS,
    KTO_ROWS,
    PAIR_GRADIENTS,
    PAIRS,
    REFERENCE_ROWS,
    SCORED_SEQUENCE,
    SEQUENCE,
    SEQUENCE_GRADIENTS,
    SLICE_GRADIENTS,
    SUM_GRADIENTS,
    VOCAB,
)
from ...ledger import Lifetime, Tensor, saved, transient
from ...work import Stream

COMPONENTS = ()

_LOGITS, _SCORED = (SEQUENCE, BATCH, VOCAB), (SCORED_SEQUENCE, BATCH, VOCAB)
_TOKENS, _SCORED_TOKENS = (SEQUENCE, BATCH), (SCORED_SEQUENCE, BATCH)
_FORWARD, _BACKWARD = ("loss_forward",), ("loss_backward",)
_ONCE: Any = {"lifetime": Lifetime.ONCE}
_HALF: Any = {"precision": ("mixed", "bf16", "fp16", "autocast")}


def preference_rows() -> tuple[Tensor, ...]:
    """Return what the losses keep and write, beside a few numbers of a sequence that a pair's loss makes."""
    return (*_llamafactory(), *_trl(), *_trl_16(), *_swift(), *_swift_16())


def _of_reference(name: str, shape: tuple[Dimension, ...], size: int, source: str, meaning: str,
                  **on: Any) -> tuple[Tensor, ...]:
    """Return one row for each kind of a reference: a copy of the model, or its weights without their adapters."""
    return (transient(f"{name}_of_copy", "loss", shape, size, source, meaning, _FORWARD, reference=("copy",), **on),
            transient(f"{name}_of_frozen", "loss", shape, size, source, meaning, _FORWARD, adapters=ADAPTED, **on))


def _llamafactory() -> tuple[Tensor, ...]:
    """Return the rows of labels gathered from the log-softmax of fp32 logits, which are gone behind the loss."""
    on: Any = {"loss": ("log_probs", "log_probs_kto")}
    pairs: Any = {"loss": ("log_probs",)}
    single: Any = {"loss": ("log_probs_kto",)}
    src = "llamafactory"
    return (
        saved("scored_log_softmax", "loss", _SCORED, 4, src, "fp32 log-softmax of scored tokens", **_ONCE, **on),
        saved("scored_labels_kept", "loss", _SCORED_TOKENS, 8, src, "int64 labels that are scored", **_ONCE, **on),
        saved("scored_mask_kept", "loss", _SCORED_TOKENS, 1, src, "bool mask of scored labels", **_ONCE, **on),
        transient("logits_held", "loss", _LOGITS, 4, src, "fp32 logits, held by the trainer", _FORWARD, **on),
        transient("logits_of_others", "loss", _LOGITS, 4, src, "fp32 logits of other answers", _FORWARD, **single),
        transient("log_softmax_of_others", "loss", _SCORED, 4, src, "fp32 log-softmax of other answers", _FORWARD,
                  **single),
        *_of_reference("held_logits", _LOGITS, 4, src, "fp32 logits of the reference", **on),
        *_of_reference("log_softmax", _SCORED, 4, src, "fp32 log-softmax of the reference", **pairs),
        transient("gathered_gradient", "loss", _SCORED, 8, src, "fp32 gradients of log-softmax and of scored logits",
                  _BACKWARD, **on),
    )


def _trl() -> tuple[Tensor, ...]:
    """Return the rows of fp32 logits; the entropy that is logged is that of a copy, some rows at a time."""
    on: Any = {"loss": ("trl_dpo", "trl_kto", "trl_orpo", "trl_simpo")}
    pairs: Any = {"loss": ("trl_orpo", "trl_simpo")}
    src = "trl_dpo"
    return (
        saved("summed_logits", "loss", _LOGITS, 4, src, "fp32 logits", **_ONCE, **on),
        saved("logit_sums", "loss", _SCORED_TOKENS, 4, src, "fp32 logarithms of sums of exponentials", **_ONCE, **on),
        saved("left_out", "loss", _SCORED_TOKENS, 1, src, "bool mask of labels that do not count", **_ONCE, **on),
        saved("places_of_labels", "loss", _SCORED_TOKENS, 8, src, "int64 labels", **_ONCE, **pairs),
        *_better("", 4, ("trl_orpo",)),
        transient("copied_logits", "loss", _SCORED, 4, src, "fp32 copy of scored logits, in one row for each token",
                  _FORWARD, loss=("trl_dpo",)),
        transient("entropy_rows", "loss", (ENTROPY_ROWS, VOCAB), 12, src,
                  "fp32 log-softmax of some tokens, its exponentials and the product of both", _FORWARD,
                  loss=("trl_dpo",)),
        transient("kto_rows", "loss", (KTO_ROWS, VOCAB), 4, src, "fp32 copies of scored logits, or what entropies need",
                  _FORWARD, loss=("trl_kto",)),
        transient("better_logits", "loss", (CHOSEN_ROWS, VOCAB), 2, src,
                  "copy of the better sequences' scored logits, 4 bytes each; of one sequence there is none", _FORWARD,
                  loss=("trl_orpo",)),
        transient("logits_cast", "loss", _LOGITS, 2, src, "bf16 logits that become fp32 ones", _FORWARD,
                  loss=("trl_simpo",), **_HALF),
        transient("last_logits_cast", "loss", (CAST_ROWS, VOCAB), 2, src,
                  "bf16 logits of one pair that become fp32 ones, less what the cross entropy keeps later", _FORWARD,
                  loss=("trl_orpo",), **_HALF),
        *_of_reference("fp32_logits", _LOGITS, 4, src, "fp32 logits of the reference, held by the trainer",
                       loss=("trl_dpo", "trl_kto")),
        transient("gradients_of_rows", "loss", (SUM_GRADIENTS, VOCAB), 4, src,
                  "fp32 gradients of sums, put together, and of labels' logits", _BACKWARD, **on),
    )


def _better(end: str, size: int, losses: tuple[str, ...]) -> tuple[Tensor, ...]:
    """Return the rows of the cross entropy of better sequences, on logits of so many bytes."""
    src = "trl_dpo"
    rows: Any = {"loss": losses}
    return (
        saved(f"better_log_softmax{end}", "loss", (SCORED_SEQUENCE, PAIRS, VOCAB), size, src,
              "log-softmax of the better sequences", **_ONCE, **rows),
        saved(f"better_labels{end}", "loss", (SCORED_SEQUENCE, PAIRS), 8, src, "int64 labels of the better sequences",
              **_ONCE, **rows),
        saved(f"better_weight{end}", "loss", (), size, src, "number of counted labels", **_ONCE, **rows),
    )


def _trl_16() -> tuple[Tensor, ...]:
    on: Any = {"loss": ("trl_dpo_16", "trl_kto_16", "trl_orpo_16", "trl_simpo_16")}
    pairs: Any = {"loss": ("trl_orpo_16", "trl_simpo_16")}
    src = "trl_dpo"
    return (
        saved("row_log_softmax", "loss", _SCORED, 2, src, "bf16 log-softmax of scored tokens", **_ONCE, **on),
        saved("left_out_16", "loss", _SCORED_TOKENS, 1, src, "bool mask of labels that do not count", **_ONCE, **on),
        saved("places_of_labels_16", "loss", _SCORED_TOKENS, 8, src, "int64 labels", **_ONCE, **pairs),
        *_better("_16", 2, ("trl_orpo_16",)),
        transient("held_logits_16", "loss", _LOGITS, 2, src, "bf16 logits, held by the trainer", _FORWARD, **on),
        transient("copied_logits_16", "loss", _SCORED, 2, src, "bf16 copy of scored logits, in one row for each token",
                  _FORWARD, loss=("trl_dpo_16",)),
        transient("entropy_rows_16", "loss", (ENTROPY_ROWS, VOCAB), 6, src,
                  "bf16 log-softmax of some tokens, its exponentials and the product of both", _FORWARD,
                  loss=("trl_dpo_16",)),
        transient("kto_rows_16", "loss", (KTO_ROWS, VOCAB), 2, src,
                  "bf16 copies of scored logits, or what entropies need", _FORWARD, loss=("trl_kto_16",)),
        *_of_reference("logits_16", _LOGITS, 2, src, "bf16 logits of the reference, held by the trainer",
                       loss=("trl_dpo_16", "trl_kto_16")),
        transient("gradient_of_slice", "loss", (SLICE_GRADIENTS, VOCAB), 2, src,
                  "bf16 gradient of all logits, beside that of scored ones in place of what was saved", _BACKWARD,
                  loss=("trl_dpo_16", "trl_kto_16", "trl_simpo_16")),
        transient("gradients_of_pairs", "loss", (PAIR_GRADIENTS, VOCAB), 2, src,
                  "bf16 gradients of all logits: of both parts of the loss and their sum, in place of what was saved",
                  _BACKWARD, loss=("trl_orpo_16",)),
    )


def _swift() -> tuple[Tensor, ...]:
    """Return the rows of fp32 logits; labels are rolled, so all tokens have one."""
    on: Any = {"loss": ("swift_dpo", "swift_kto")}
    src = "ms_swift"
    return (
        saved("all_logits", "loss", _LOGITS, 4, src, "fp32 logits", **_ONCE, **on),
        saved("all_sums", "loss", _TOKENS, 4, src, "fp32 logarithms of sums of exponentials", **_ONCE, **on),
        saved("rolled_labels", "loss", _TOKENS, 8, src, "int64 next tokens", **_ONCE, **on),
        saved("left_out_of_all", "loss", _TOKENS, 1, src, "bool mask of labels that do not count", **_ONCE, **on),
        transient("logits_before_cast", "loss", _LOGITS, 2, src, "bf16 logits that become fp32 ones", _FORWARD,
                  **on, **_HALF),
        *_of_reference("all_logits", _LOGITS, 4, src, "fp32 logits of the reference", **on),
        transient("gradients_of_sequences", "loss", (ALL_SUM_GRADIENTS, VOCAB), 4, src,
                  "fp32 gradients of sums, put together, and of labels' logits", _BACKWARD, **on),
    )


def _swift_16() -> tuple[Tensor, ...]:
    on: Any = {"loss": ("swift_dpo_16", "swift_kto_16")}
    src = "ms_swift"
    return (
        saved("all_log_softmax", "loss", _LOGITS, 2, src, "bf16 log-softmax", **_ONCE, **on),
        saved("rolled_labels_16", "loss", _TOKENS, 8, src, "int64 next tokens", **_ONCE, **on),
        saved("left_out_of_all_16", "loss", _TOKENS, 1, src, "bool mask of labels that do not count", **_ONCE, **on),
        transient("all_logits_16", "loss", _LOGITS, 2, src, "bf16 logits, of the policy or of the reference", _FORWARD,
                  **on),
        *_of_reference("rows_16", (SEQUENCE, REFERENCE_ROWS, VOCAB), 2, src,
                       "bf16 log-softmax of the reference, of two sequences", **on),
        transient("gradient_of_sequences", "loss", (SEQUENCE_GRADIENTS, VOCAB), 2, src,
                  "bf16 gradients of logits, put together beside those of sequences in place of what was saved",
                  _BACKWARD, **on),
    )


def preference_work() -> tuple[Stream, ...]:
    """Return the traffic of the policy's logits: each kernel reads its inputs and writes its output."""
    return tuple(
        Stream(f"{loss}.steps", "loss", _LOGITS, forward, backward, source, meaning, kernels, options={"loss": (loss,)})
        for loss, forward, backward, kernels, source, meaning in (
            ("log_probs", 14, 22, 3, "llamafactory", "fp32 copy, log-softmax; gradients of both, a cast"),
            ("log_probs_kto", 22, 22, 5, "llamafactory", "fp32 copy, log-softmax, copies; gradients of both, a cast"),
            ("trl_kto", 90, 66, 27, "trl_dpo", "fp32 copy, sums, entropy, copies and means; gradients, a cast"),
            ("trl_kto_16", 34, 18, 17, "trl_dpo", "log-softmax, entropy, copies and means; gradients by sequence"),
            ("trl_orpo", 42, 96, 21, "trl_dpo", "fp32 copy, mean, sums, log-softmax of half; gradients, sums, a cast"),
            ("trl_orpo_16", 10, 33, 11, "trl_dpo", "mean, log-softmax, of half once more; gradients and their sum"),
            ("trl_simpo", 34, 66, 15, "trl_dpo", "fp32 copy, mean and sums; gradients, their sum and a cast"),
            ("trl_simpo_16", 6, 18, 7, "trl_dpo", "mean and log-softmax; gradients by sequence"),
            ("swift_kto", 34, 54, 13, "ms_swift", "fp32 copy, sums; gradients, their sum and a cast"),
            ("swift_kto_16", 6, 12, 5, "ms_swift", "sum and log-softmax; gradients by sequence"),
            ("trl_dpo", 84, 66, 25, "trl_dpo", "fp32 copy, sums, entropy and means; gradients, their sum and a cast"),
            ("trl_dpo_16", 33, 18, 15, "trl_dpo", "log-softmax, entropy and means; gradients by sequence"),
            ("swift_dpo", 34, 54, 13, "ms_swift", "fp32 copy, mean and sums; gradients, their sum and a cast"),
            ("swift_dpo_16", 6, 12, 5, "ms_swift", "mean and log-softmax; gradients by sequence"),
        )
    )
