"""Losses of preference training on logits of all tokens: DPO of LLaMA-Factory, of TRL 1.9, and of ms-swift.

Accelerate's mixed precision makes fp32 of a model's logits as they are returned; with DeepSpeed they stay in 16 bits.
Of fp32 logits TRL's function keeps the logits themselves and a logarithm of their sum; of 16-bit ones it keeps a
log-softmax, a sequence at a time. A reference, a copy or the frozen weights beside adapters, makes logits of its own
while those of the policy are kept. Its rows stand with adapters also where its log-probabilities were computed before.
"""

from __future__ import annotations

from typing import Any

from ..choices import ADAPTED
from ..dimension import Dimension
from ..dimensions import BATCH, ENTROPY_ROWS, REFERENCE_ROWS, SCORED_SEQUENCE, SEQUENCE, VOCAB
from ..ledger import Lifetime, Tensor, saved, transient
from ..work import Stream

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
    on: Any = {"loss": ("log_probs",)}
    src = "llamafactory"
    return (
        saved("scored_log_softmax", "loss", _SCORED, 4, src, "fp32 log-softmax of scored tokens", **_ONCE, **on),
        saved("scored_labels_kept", "loss", _SCORED_TOKENS, 8, src, "int64 labels that are scored", **_ONCE, **on),
        saved("scored_mask_kept", "loss", _SCORED_TOKENS, 1, src, "bool mask of scored labels", **_ONCE, **on),
        transient("logits_held", "loss", _LOGITS, 4, src, "fp32 logits, held by the trainer", _FORWARD, **on),
        *_of_reference("held_logits", _LOGITS, 4, src, "fp32 logits of the reference", **on),
        *_of_reference("log_softmax", _SCORED, 4, src, "fp32 log-softmax of the reference", **on),
        transient("gathered_gradient", "loss", _SCORED, 8, src, "fp32 gradients of log-softmax and of scored logits",
                  _BACKWARD, **on),
    )


def _trl() -> tuple[Tensor, ...]:
    """Return the rows of fp32 logits; the entropy that is logged is that of a copy, some rows at a time."""
    on: Any = {"loss": ("trl_dpo",)}
    src = "trl_dpo"
    return (
        saved("summed_logits", "loss", _LOGITS, 4, src, "fp32 logits", **_ONCE, **on),
        saved("logit_sums", "loss", _SCORED_TOKENS, 4, src, "fp32 logarithms of sums of exponentials", **_ONCE, **on),
        saved("left_out", "loss", _SCORED_TOKENS, 1, src, "bool mask of labels that do not count", **_ONCE, **on),
        transient("copied_logits", "loss", _SCORED, 4, src, "fp32 copy of scored logits, in one row for each token",
                  _FORWARD, **on),
        transient("entropy_rows", "loss", (ENTROPY_ROWS, VOCAB), 12, src,
                  "fp32 log-softmax of some tokens, its exponentials and the product of both", _FORWARD, **on),
        *_of_reference("fp32_logits", _LOGITS, 4, src, "fp32 logits of the reference, held by the trainer", **on),
        transient("gradients_of_rows", "loss", _SCORED, 8, src,
                  "fp32 gradients of sums, put together, and of labels' logits", _BACKWARD, **on),
    )


def _trl_16() -> tuple[Tensor, ...]:
    on: Any = {"loss": ("trl_dpo_16",)}
    src = "trl_dpo"
    return (
        saved("row_log_softmax", "loss", _SCORED, 2, src, "bf16 log-softmax of scored tokens", **_ONCE, **on),
        saved("left_out_16", "loss", _SCORED_TOKENS, 1, src, "bool mask of labels that do not count", **_ONCE, **on),
        transient("held_logits_16", "loss", _LOGITS, 2, src, "bf16 logits, held by the trainer", _FORWARD, **on),
        transient("copied_logits_16", "loss", _SCORED, 2, src, "bf16 copy of scored logits, in one row for each token",
                  _FORWARD, **on),
        transient("entropy_rows_16", "loss", (ENTROPY_ROWS, VOCAB), 6, src,
                  "bf16 log-softmax of some tokens, its exponentials and the product of both", _FORWARD, **on),
        *_of_reference("logits_16", _LOGITS, 2, src, "bf16 logits of the reference, held by the trainer", **on),
        transient("gradient_of_slice", "loss", _LOGITS, 2, src,
                  "bf16 gradient of all logits, beside that of scored ones in place of what was saved", _BACKWARD,
                  **on),
    )


def _swift() -> tuple[Tensor, ...]:
    """Return the rows of fp32 logits; labels are rolled, so all tokens have one."""
    on: Any = {"loss": ("swift_dpo",)}
    src = "ms_swift"
    return (
        saved("all_logits", "loss", _LOGITS, 4, src, "fp32 logits", **_ONCE, **on),
        saved("all_sums", "loss", _TOKENS, 4, src, "fp32 logarithms of sums of exponentials", **_ONCE, **on),
        saved("rolled_labels", "loss", _TOKENS, 8, src, "int64 next tokens", **_ONCE, **on),
        saved("counted_masks", "loss", _TOKENS, 3, src, "bool masks of labels that count, their contrary twice",
              **_ONCE, **on),
        transient("logits_before_cast", "loss", _LOGITS, 2, src, "bf16 logits that become fp32 ones", _FORWARD,
                  **on, **_HALF),
        *_of_reference("all_logits", _LOGITS, 4, src, "fp32 logits of the reference", **on),
        transient("gradients_of_sequences", "loss", _LOGITS, 8, src,
                  "fp32 gradients of sums, put together, and of labels' logits", _BACKWARD, **on),
    )


def _swift_16() -> tuple[Tensor, ...]:
    on: Any = {"loss": ("swift_dpo_16",)}
    src = "ms_swift"
    return (
        saved("all_log_softmax", "loss", _LOGITS, 2, src, "bf16 log-softmax", **_ONCE, **on),
        saved("rolled_labels_16", "loss", _TOKENS, 8, src, "int64 next tokens", **_ONCE, **on),
        saved("counted_masks_16", "loss", _TOKENS, 3, src, "bool masks of labels that count, their contrary twice",
              **_ONCE, **on),
        transient("all_logits_16", "loss", _LOGITS, 2, src, "bf16 logits, of the policy or of the reference", _FORWARD,
                  **on),
        *_of_reference("rows_16", (SEQUENCE, REFERENCE_ROWS, VOCAB), 2, src,
                       "bf16 log-softmax of the reference, of two sequences", **on),
        transient("gradient_of_sequences", "loss", _LOGITS, 2, src,
                  "bf16 gradients of logits, put together beside those of sequences in place of what was saved",
                  _BACKWARD, **on),
    )


def preference_work() -> tuple[Stream, ...]:
    """Return the traffic of the policy's logits: each kernel reads its inputs and writes its output."""
    return tuple(
        Stream(f"{loss}.steps", "loss", _LOGITS, forward, backward, source, meaning, kernels, options={"loss": (loss,)})
        for loss, forward, backward, kernels, source, meaning in (
            ("log_probs", 14, 22, 3, "llamafactory", "fp32 copy, log-softmax; gradients of both, a cast"),
            ("trl_dpo", 84, 66, 25, "trl_dpo", "fp32 copy, sums, entropy and means; gradients, their sum and a cast"),
            ("trl_dpo_16", 33, 18, 15, "trl_dpo", "log-softmax, entropy and means; gradients by sequence"),
            ("swift_dpo", 34, 54, 13, "ms_swift", "fp32 copy, mean and sums; gradients, their sum and a cast"),
            ("swift_dpo_16", 6, 12, 5, "ms_swift", "mean and log-softmax; gradients by sequence"),
        )
    )
