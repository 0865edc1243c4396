"""Losses of reinforcement learning in verl: log-probabilities of an actor, and values of a critic.

An actor's cross entropy is flash-attn's, which keeps 16-bit logits; without entropy their gradient overwrites them.
"""

from __future__ import annotations

from typing import Any

from ...choices import ACTORS_16
from ...dimensions import BATCH, SCORE, SEQUENCE, VOCAB
from ...ledger import Lifetime, Tensor, saved, transient
from ...work import Stream

COMPONENTS = ()

_LOGITS, _TOKENS = (SEQUENCE, BATCH, VOCAB), (SEQUENCE, BATCH)
_AFTER, _FORWARD, _BACKWARD = ("after_forward",), ("loss_forward",), ("loss_backward",)
_ALL = (*_AFTER, *_FORWARD, *_BACKWARD)


def policy_rows() -> tuple[Tensor, ...]:
    """Return what the losses keep and write, beside the numbers of each token that a policy's loss itself makes."""
    on: Any = {"loss": ACTORS_16, "lifetime": Lifetime.ONCE}
    src = "verl"
    return (
        saved("policy_logits", "loss", _LOGITS, 2, src, "bf16 logits, of all tokens", **on),
        saved("policy_sums", "loss", _TOKENS, 4, src, "fp32 logarithms of sums of exponentials", **on),
        saved("policy_labels", "loss", _TOKENS, 8, src, "int64 next tokens", **on),
        transient("log_probabilities", "loss", _TOKENS, 8, src, "fp32 log-probabilities and their negatives", _FORWARD,
                  loss=ACTORS_16),
        transient("value_of_policy", "loss", (), 4, src, "fp32 loss", _ALL, loss=ACTORS_16),
        *_critic(),
    )


def _critic() -> tuple[Tensor, ...]:
    """Predicted values within a range of earlier ones, and the larger one of two squared errors."""
    on: Any = {"loss": ("value",)}
    src, scores = "verl", (SEQUENCE, BATCH, SCORE)
    return (
        saved("predicted_values", "loss", scores, 2, src, "bf16 predicted values", lifetime=Lifetime.ONCE, **on),
        saved("value_errors", "loss", scores, 28, src, "fp32 bounds, bounded values, errors and their squares",
              lifetime=Lifetime.ONCE, **on),
        saved("counted_tokens", "loss", (), 8, src, "int64 number of tokens that count", lifetime=Lifetime.ONCE, **on),
        transient("value_losses", "loss", (), 8, src, "fp32 loss, and the share of bounded values",
                  (*_AFTER, *_FORWARD), **on),
        transient("value_loss_backward", "loss", (), 4, src,
                  "fp32 loss, its gradient and the share, less the number of tokens, which is gone", _BACKWARD, **on),
        transient("value_gradients", "loss", scores, 18, src, "fp32 gradients of errors, bf16 gradient of values",
                  _BACKWARD, **on),
    )


def policy_work() -> tuple[Stream, ...]:
    """Return the traffic of logits: read, and overwritten by their gradient."""
    return (
        Stream("verl.steps", "loss", _LOGITS, 2, 4, "verl", "statistics; the gradient", 2, options={"loss": ("verl",)}),
    )
