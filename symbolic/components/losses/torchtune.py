"""torchtune's losses: on all logits, on chunks of them, and on chunks of the head's input.

Up to release 0.2 the recipe cuts off the last token's logits and holds the rest until the step is over; later ones
shift labels alone and free the logits. ``CEWithChunkedOutputLoss`` gets logits of 8 chunks of each sequence, of which
it has one at a time in fp32; its log-softmaxes are kept. ``LinearCrossEntropyLoss`` makes logits of scored tokens
itself, a chunk at a time. Compiled losses keep the logits in place of log-softmaxes. No logits are made twice.

In the backward pass each chunk has a gradient of the head's matrix. PyTorch sums those of the first two in a third
tensor, and all others in place; behind a compiled head all of them. A last chunk of one token is not copied where there
are several sequences, which is left out.
"""

from __future__ import annotations

from typing import Any

from ...choices import ADAPTED, TORCHTUNE_CHUNKS, TORCHTUNE_LINEAR, TRAINED_HEADS
from ...dimension import Dimension
from ...dimensions import (
    BATCH,
    HIDDEN,
    SCORED_SEQUENCE,
    SEQUENCE,
    TUNE_CAST_ROWS,
    TUNE_CHUNK_TOKENS,
    TUNE_CHUNKS,
    TUNE_COMPILED_GRADIENTS,
    TUNE_GRADIENT_ROWS,
    TUNE_HEAD_GRADIENTS,
    TUNE_LINEAR_GRADIENTS,
    TUNE_SCORED,
    VOCAB,
)
from ...functions import Iverson
from ...ledger import Lifetime, Tensor, saved, transient
from ...parameters import symbols
from ...work import Stream
from .held import held_rows

COMPONENTS = ()

b, s = symbols("b s")

_SRC = "torchtune"
_LOGITS, _SCORED = (SEQUENCE, BATCH, VOCAB), (SCORED_SEQUENCE, BATCH, VOCAB)
_TOKENS, _SCORED_TOKENS = (SEQUENCE, BATCH), (SCORED_SEQUENCE, BATCH)
_AFTER, _FORWARD, _BACKWARD, _HEAD = ("after_forward",), ("loss_forward",), ("loss_backward",), ("head_backward",)
_ONCE: Any = {"lifetime": Lifetime.ONCE}
_TRAINED: Any = TRAINED_HEADS
_FROZEN: Any = {"adapters": ADAPTED, "adapter_ends": ("frozen",)}
#: One sequence is a view of its first tokens, and more are copied together.
_VIEW, _COPIED = Iverson(b <= 1), Iverson(b > 1)


def torchtune_rows() -> tuple[Tensor, ...]:
    """Return the rows of losses on logits that the model makes."""
    return (*_shifted(), *_compiled(), *_chunks())


def _shifted() -> tuple[Tensor, ...]:
    on: Any = {"loss": ("torchtune_shifted",)}
    return (
        saved("shifted_log_softmax", "loss", _SCORED, 4, _SRC, "fp32 log-softmax of scored tokens", **_ONCE, **on),
        saved("shifted_targets", "loss", _SCORED_TOKENS, 8, _SRC, "int64 labels shifted by one token", when=_COPIED,
              **_ONCE, **on),
        saved("targets_viewed", "loss", _TOKENS, 8, _SRC, "int64 labels, of which the shifted ones are a view",
              when=_VIEW, **_ONCE, **on),
        saved("shifted_weight", "loss", (), 4, _SRC, "fp32 number of counted labels", **_ONCE, **on),
        *held_rows("scored_", _SCORED, 4, _SRC, "fp32 logits of scored tokens, held by the recipe",
                   "torchtune_shifted", _COPIED),
        *held_rows("whole_", _LOGITS, 4, _SRC, "fp32 logits, held by the recipe", "torchtune_shifted", _VIEW),
        transient("transposed_logits", "loss", _SCORED, 4, _SRC, "contiguous copy of the transposed logits", _FORWARD,
                  **on),
        transient("shifted_gradients", "loss", _SCORED, 8, _SRC, "fp32 gradients of log-softmax and of scored logits",
                  _BACKWARD, **on),
        transient("shifted_value", "loss", (), 4, _SRC, "fp32 mean loss", (*_AFTER, *_FORWARD, *_BACKWARD), **on),
    )


def _compiled() -> tuple[Tensor, ...]:
    on: Any = {"loss": ("torchtune_compiled",)}
    return (
        saved("logits_read_again", "loss", _LOGITS, 4, _SRC, "fp32 logits, read again in the backward pass", **_ONCE,
              **on),
        saved("sums_of_all", "loss", _TOKENS, 8, _SRC, "fp32 maxima and logarithms of sums of exponentials", **_ONCE,
              **on),
        saved("counted_of_all", "loss", (), 4, _SRC, "fp32 number of counted labels", **_ONCE, **on),
        transient("logits_made_fp32", "loss", _LOGITS, 2, _SRC, "bf16 logits that become fp32 ones", _FORWARD, **on),
        transient("mean_of_all", "loss", (), 4, _SRC, "fp32 mean loss", (*_AFTER, *_FORWARD, *_BACKWARD), **on),
        transient("gradient_of_all", "loss", _LOGITS, 4, _SRC, "fp32 gradient of the logits", _BACKWARD, **on),
        transient("scales_of_all", "loss", _TOKENS, 4, _SRC, "fp32 gradients of the labels' log-probabilities",
                  _BACKWARD, **on),
    )


def _chunks() -> tuple[Tensor, ...]:
    both: Any = {"loss": TORCHTUNE_CHUNKS}
    eager: Any = {"loss": ("torchtune_chunks",)}
    compiled: Any = {"loss": ("torchtune_chunks_compiled",)}
    return (
        saved("log_softmax_of_chunks", "loss", _LOGITS, 4, _SRC, "fp32 log-softmaxes of chunks", **_ONCE, **eager),
        saved("weights_of_chunks", "loss", (TUNE_CHUNKS,), 4, _SRC, "fp32 numbers of counted labels", **_ONCE, **eager),
        saved("logits_of_chunks", "loss", _LOGITS, 2, _SRC, "bf16 logits of chunks, read again", **_ONCE, **compiled),
        saved("sums_of_chunks", "loss", _TOKENS, 8, _SRC, "fp32 maxima and logarithms of sums of exponentials",
              **_ONCE, **compiled),
        saved("labels_of_chunks", "loss", _TOKENS, 8, _SRC, "int64 labels of chunks, copied together", when=_COPIED,
              **_ONCE, **both),
        saved("labels_viewed", "loss", _TOKENS, 8, _SRC, "int64 labels, of which chunks are views", when=_VIEW,
              **_ONCE, **both),
        saved("counted_labels", "loss", (), 8, _SRC, "int64 number of counted labels", **_ONCE, **both),
        transient("labels_of_recipe", "loss", _TOKENS, 8, _SRC, "int64 labels shifted by one token", _FORWARD,
                  when=_COPIED, **both),
        transient("value_of_torchtune", "loss", (), 4, _SRC, "fp32 mean loss", (*_AFTER, *_FORWARD, *_BACKWARD),
                  **both),
        transient("hidden_before_chunks", "loss", (SEQUENCE, BATCH, HIDDEN), 2, _SRC,
                  "bf16 input of the head, of which chunks are copies, until all logits are there", _FORWARD,
                  when=_COPIED, **compiled),
        transient("list_of_logits", "loss", _LOGITS, 2, _SRC, "bf16 logits of chunks, held by the recipe", _FORWARD,
                  **eager),
        transient("chunk_in_fp32", "loss", (TUNE_CAST_ROWS, VOCAB), 4, _SRC, "fp32 copy of the logits of a chunk",
                  _FORWARD, **eager),
        transient("gradients_of_chunk", "loss", (TUNE_GRADIENT_ROWS, VOCAB), 2, _SRC,
                  "fp32 gradients of log-softmax and of logits of a chunk", _BACKWARD, **eager),
        transient("gradient_of_chunk", "loss", (TUNE_CHUNK_TOKENS, VOCAB), 2, _SRC, "bf16 gradient of a chunk's logits",
                  _BACKWARD, **compiled),
        transient("head_gradients_of_chunks", "head", (TUNE_HEAD_GRADIENTS,), 2, _SRC,
                  "bf16 gradients of logits, of the head's input, and of its matrix from two chunks and their sum",
                  _HEAD, peak=("torch",), adapters=("none",), **both),
    )


def linear_rows() -> tuple[Tensor, ...]:
    """Return the rows of a loss that makes logits of scored tokens itself."""
    both: Any = {"loss": TORCHTUNE_LINEAR}
    eager: Any = {"loss": ("torchtune_linear",)}
    compiled: Any = {"loss": ("torchtune_linear_compiled",)}
    return (
        *(saved(f"selected_hidden{end}", "loss", (SCORED_SEQUENCE, BATCH, HIDDEN), 2, _SRC,
                "bf16 hidden states that are scored", **_ONCE, **trained, **both)
          for end, trained in _TRAINED.items()),
        transient("selected_for_frozen", "loss", (SCORED_SEQUENCE, BATCH, HIDDEN), 2, _SRC,
                  "bf16 hidden states that are scored, which a frozen head does not keep", _FORWARD, **_FROZEN, **both),
        saved("selected_labels", "loss", _SCORED_TOKENS, 16, _SRC, "int64 labels that are scored, and their places",
              **_ONCE, **both),
        saved("log_softmax_of_parts", "loss", _SCORED, 4, _SRC, "fp32 log-softmaxes of chunks", **_ONCE, **eager),
        saved("weights_of_parts", "loss", (), 32, _SRC, "fp32 numbers of counted labels of 8 chunks", **_ONCE, **eager),
        saved("logits_of_parts", "loss", _SCORED, 2, _SRC, "bf16 logits of chunks", **_ONCE, **compiled),
        saved("sums_of_parts", "loss", _SCORED_TOKENS, 8, _SRC, "fp32 maxima and logarithms of sums of exponentials",
              **_ONCE, **compiled),
        transient("value_of_parts", "loss", (), 4, _SRC, "fp32 mean loss", (*_AFTER, *_FORWARD, *_BACKWARD), **both),
        transient("labels_before", "loss", _TOKENS, 8, _SRC, "int64 labels shifted by one token", _FORWARD, **both),
        transient("logits_of_part", "loss", (TUNE_SCORED, VOCAB), 6, _SRC, "bf16 logits of a chunk and their fp32 copy",
                  _FORWARD, **eager),
        *(row for end, trained in _TRAINED.items() for row in _gradients_of_parts(end, trained)),
        transient("gradients_of_part", "loss", (TUNE_SCORED, VOCAB), 8, _SRC,
                  "fp32 gradients of log-softmax and of logits of a chunk", _BACKWARD, **_FROZEN, **eager),
        transient("hidden_gradient_of_part", "loss", (TUNE_SCORED, HIDDEN), 2, _SRC,
                  "bf16 gradient of a chunk's hidden states", _BACKWARD, **_FROZEN, **compiled),
    )


def _gradients_of_parts(end: str, trained: Any) -> tuple[Tensor, ...]:
    """Return the rows of a head that is trained: its matrix has gradients of chunks while others have log-softmaxes."""
    def row(name: str, elements: Dimension, loss: str) -> Tensor:
        return transient(f"{name}{end}", "loss", (elements,), 2, _SRC,
                         "gradients of a chunk, and of the head's matrix from two chunks, less what is freed by then",
                         _BACKWARD, loss=(loss,), **trained)

    return (row("linear_gradients", TUNE_LINEAR_GRADIENTS, "torchtune_linear"),
            row("compiled_gradients", TUNE_COMPILED_GRADIENTS, "torchtune_linear_compiled"))


def torchtune_work() -> tuple[Stream, ...]:
    """Return the traffic of logits."""
    return tuple(
        Stream(f"{losses[0]}.steps", "loss", shape, forward, backward, _SRC, meaning, kernels, options={"loss": losses})
        for losses, shape, forward, backward, kernels, meaning in (
            (("torchtune_shifted",), _LOGITS, 30, 34, 6,
             "fp32 copy, without last tokens, transposed, log-softmax; gradients of all"),
            (("torchtune_compiled",), _LOGITS, 14, 14, 4, "fp32 copy, maximum and sum; the gradient and a cast"),
            (("torchtune_chunks",), _LOGITS, 14, 22, 24, "fp32 copy and log-softmax of each chunk; gradients"),
            (("torchtune_chunks_compiled",), _LOGITS, 4, 4, 16, "maximum and sum of each chunk; the gradient"),
        )
    )


def linear_work() -> tuple[Stream, ...]:
    """Return the traffic of logits that the loss makes itself."""
    return (
        Stream("torchtune_linear.steps", "loss", _SCORED, 14, 22, _SRC,
               "fp32 copy and log-softmax of each chunk; gradients of both, and a cast", 24,
               options={"loss": ("torchtune_linear",)}),
        Stream("torchtune_linear_compiled.steps", "loss", _SCORED, 4, 4, _SRC,
               "maximum and sum of each chunk; the gradient", 16, options={"loss": ("torchtune_linear_compiled",)}),
    )
