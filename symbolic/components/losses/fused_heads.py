"""Losses that make logits of the head's input: of Liger, TRL and torchtune, and cut cross entropy.

Liger makes the gradients of the head's input and of its matrix in the forward pass and keeps them. TRL keeps the scored
tokens' hidden states and computes the logits again in the backward pass, whose gradients it sums in fp32. Cut cross
entropy keeps the head's input and computes them again too, a tile at a time in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...choices import FUSED_HEADS, TORCHTUNE_LINEAR, TRAINED_HEADS
from ...dimensions import (
    BATCH,
    CHUNK_TOKENS,
    HIDDEN,
    SCORED_SEQUENCE,
    SEQUENCE,
    SEQUENCE_SP,
    SHIFTED_SEQUENCE,
    TILE_TOKENS,
    TILE_VOCAB,
    VOCAB,
)
from ...functions import Iverson
from ...ledger import Component, Lifetime, Place, Tensor, saved, transient
from ...parameters import symbols
from ...work import Stream
from .torchtune import linear_rows, linear_work

(b,) = symbols("b")

_TOKENS, _SCORED = (SEQUENCE, BATCH), (SCORED_SEQUENCE, BATCH)
_FORWARD, _BACKWARD = ("loss_forward",), ("loss_backward",)


def _of_trained(make: Callable[..., Tensor], name: str, size: int, source: str, meaning: str, *sites: Any,
                **more: Any) -> tuple[Tensor, ...]:
    """Return a row of the shape of the head's matrix for each kind of a head that is trained."""
    return tuple(make(f"{name}{end}", "loss", (VOCAB, HIDDEN), size, source, meaning, *sites, **more, **trained)
                 for end, trained in TRAINED_HEADS.items())


def _liger() -> tuple[Tensor, ...]:
    on: Any = {"loss": ("liger",)}
    src = "liger"
    return (
        saved("input_gradient", "loss", (SEQUENCE, BATCH, HIDDEN), 2, src, "bf16 gradient of the head's input",
              lifetime=Lifetime.ONCE, **on),
        *_of_trained(saved, "head_gradient", 2, src, "bf16 gradient of the head's matrix", lifetime=Lifetime.ONCE,
                     **on),
        transient("chunk_logits", "loss", (CHUNK_TOKENS, VOCAB), 2, src,
                  "bf16 logits of some tokens, overwritten by their gradient", _FORWARD, **on),
        transient("padded_labels_held", "loss", (SHIFTED_SEQUENCE, BATCH), 8, src, "int64 labels with one more",
                  _FORWARD, **on),
        transient("shifted_labels_held", "loss", _TOKENS, 8, src, "int64 labels shifted by one token", _FORWARD,
                  when=Iverson(b > 1), **on),
        transient("token_losses", "loss", _TOKENS, 5, src, "fp32 losses, and a bool mask of counted labels", _FORWARD,
                  **on),
        transient("value_of_chunks", "loss", (), 4, src, "fp32 mean loss", ("after_forward", *_FORWARD, *_BACKWARD),
                  **on),
    )


def _trl() -> tuple[Tensor, ...]:
    """Statistics are those of supervised training, which logs the entropy and how often the label is the likeliest."""
    on: Any = {"loss": ("trl",)}
    src = "trl"
    return (
        saved("scored_hidden", "loss", (SCORED_SEQUENCE, BATCH, HIDDEN), 2, src, "bf16 hidden states that are scored",
              lifetime=Lifetime.ONCE, **on),
        saved("scored_labels", "loss", _SCORED, 8, src, "int64 labels that are scored", lifetime=Lifetime.ONCE, **on),
        saved("statistics", "loss", _SCORED, 8, src, "fp32 logarithms of sums of exponentials, and entropies",
              lifetime=Lifetime.ONCE, **on),
        saved("scored_mask", "loss", _SCORED, 1, src, "bool mask of scored labels", lifetime=Lifetime.ONCE, **on),
        saved("scored_count", "loss", (), 8, src, "int64 number of scored labels", lifetime=Lifetime.ONCE, **on),
        transient("value_of_scores", "loss", (), 4, src, "fp32 mean loss", ("after_forward", *_FORWARD, *_BACKWARD),
                  **on),
        transient("tile", "loss", (TILE_TOKENS, TILE_VOCAB), 2, src,
                  "bf16 logits of some tokens and a part of the vocabulary, overwritten by their gradient",
                  (*_FORWARD, *_BACKWARD), **on),
        transient("running", "loss", _SCORED, 36, src,
                  "fp32 maxima, sums and logits of labels while tiles are folded, and what is made of them", _FORWARD,
                  **on),
        transient("hidden_gradient_fp32", "loss", (SCORED_SEQUENCE, BATCH, HIDDEN), 4, src,
                  "fp32 sum of the hidden states' gradient", _BACKWARD, **on),
        transient("hidden_gradient", "loss", (SCORED_SEQUENCE, BATCH, HIDDEN), 2, src,
                  "bf16 gradient of the scored hidden states", _BACKWARD, **on),
        *_of_trained(transient, "head_gradient_fp32", 4, src, "fp32 sum of the head's gradient", _BACKWARD, **on),
        *_of_trained(transient, "head_gradient_bf16", 2, src, "bf16 gradient of the head's matrix", _BACKWARD, **on),
    )


def _cut() -> tuple[Tensor, ...]:
    on: Any = {"loss": ("cut",)}
    src = "cut_cross_entropy"
    return (
        saved("head_input_kept", "loss", (SEQUENCE_SP, BATCH, HIDDEN), 2, src, "bf16 input of the head",
              storage="head.normed", lifetime=Lifetime.ONCE, **on),
        saved("log_sums", "loss", _SCORED, 4, src, "fp32 logarithms of sums of exponentials", lifetime=Lifetime.ONCE,
              **on),
        saved("scored_places", "loss", _SCORED, 8, src, "int64 places of scored labels", lifetime=Lifetime.ONCE, **on),
        saved("mean_logits", "loss", (VOCAB,), 4, src, "fp32 mean logit of every word, which orders the backward pass",
              lifetime=Lifetime.ONCE, **on),
        transient("label_logits", "loss", _SCORED, 4, src, "fp32 logits of labels, later losses", _FORWARD, **on),
        transient("value_of_cut", "loss", (), 4, src, "fp32 mean loss", ("after_forward", *_FORWARD, *_BACKWARD), **on),
        transient("word_order", "loss", (VOCAB,), 4, src, "int32 order of words", _BACKWARD, **on),
        transient("token_locks", "loss", _SCORED, 4, src, "int32 locks of gradients of tokens", _BACKWARD, **on),
        transient("word_locks", "loss", (VOCAB,), 4, src, "int32 locks of gradients of words", _BACKWARD, **on),
        transient("cut_input_gradient", "loss", (SEQUENCE, BATCH, HIDDEN), 2, src, "bf16 gradient of the head's input",
                  _BACKWARD, **on),
        *_of_trained(transient, "cut_head_gradient", 2, src, "bf16 gradient of the head's matrix", _BACKWARD, **on),
    )


def _work() -> tuple[Stream, ...]:
    """Return the traffic of logits: read twice and overwritten in one pass, or once in each."""
    logits = (SEQUENCE, BATCH, VOCAB)
    return (
        Stream("liger.steps", "loss", logits, 6, 0, "liger", "statistics, then the gradient, in the forward pass", 1,
               options={"loss": ("liger",)}),
        Stream("trl.steps", "loss", logits, 2, 4, "trl", "statistics; the gradient in the backward pass", 1,
               options={"loss": ("trl",)}),
    )


COMPONENTS = (
    Component(
        "fused_head", "Head and loss in one function", 91, Place.LAST,
        (
            transient("head_input", "loss", (SEQUENCE, BATCH, HIDDEN), 2, "transformers",
                      "bf16 output of the final norm, held by the model", _FORWARD,
                      loss=("liger", "trl", *TORCHTUNE_LINEAR)),
            *_liger(), *_trl(), *_cut(), *linear_rows(),
        ),
        options={"loss": FUSED_HEADS},
        work=_work() + linear_work(),
    ),
)
