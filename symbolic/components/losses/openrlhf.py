"""Losses of OpenRLHF's actor: log-probabilities from fp32 logits, which the trainer holds, and their entropy.

flash-attn's cross entropy keeps the fp32 logits and writes their gradient beside them. The entropy is compiled.
"""

from __future__ import annotations

from typing import Any

from ...dimensions import BATCH, SEQUENCE, VOCAB
from ...ledger import Lifetime, Tensor, saved, transient
from ...work import Stream

COMPONENTS = ()

_LOGITS, _TOKENS = (SEQUENCE, BATCH, VOCAB), (SEQUENCE, BATCH)
_FORWARD, _BACKWARD = ("loss_forward",), ("loss_backward",)
_SRC = "openrlhf"
_PLAIN, _ENTROPY = ("openrlhf",), ("openrlhf_entropy",)


def openrlhf_rows() -> tuple[Tensor, ...]:
    """Return what the losses keep and write, beside the numbers of each token that a policy's loss itself makes."""
    both: Any = {"loss": (*_PLAIN, *_ENTROPY)}
    once: Any = {"lifetime": Lifetime.ONCE}
    return (
        saved("fp32_logits", "loss", _LOGITS, 4, _SRC, "fp32 logits, of all tokens", **once, **both),
        saved("fp32_sums", "loss", _TOKENS, 4, _SRC, "fp32 logarithms of sums of exponentials", **once, **both),
        saved("rolled_tokens", "loss", _TOKENS, 8, _SRC, "int64 next tokens", **once, **both),
        saved("fp32_statistics", "loss", _TOKENS, 12, _SRC,
              "fp32 maxima and sums of exponentials, and the logarithm of these", **once, loss=_ENTROPY),
        transient("model_logits", "loss", _LOGITS, 2, _SRC, "bf16 logits of the model, about to be replaced", _FORWARD,
                  **both),
        transient("fp32_gradient", "loss", _LOGITS, 4, _SRC, "fp32 gradient of log-probabilities", _BACKWARD, **both),
        transient("fp32_entropy_gradient", "loss", _LOGITS, 4, _SRC, "fp32 gradient of the entropy", _BACKWARD,
                  loss=_ENTROPY),
        transient("logits_gradient_16", "loss", _LOGITS, 2, _SRC, "bf16 gradient of the model's logits", _BACKWARD,
                  loss=_PLAIN),
        transient("value_of_actor", "loss", (), 4, _SRC, "fp32 loss", ("after_forward", *_FORWARD, *_BACKWARD), **both),
    )


def openrlhf_work() -> tuple[Stream, ...]:
    """Return the traffic of logits: a copy to fp32, statistics, gradients and a copy back."""
    return tuple(
        Stream(f"{loss}.steps", "loss", _LOGITS, forward, backward, _SRC, meaning, kernels, options={"loss": (loss,)})
        for loss, forward, backward, kernels, meaning in (
            ("openrlhf", 10, 14, 4, "fp32 copy and statistics; the gradient and its cast"),
            ("openrlhf_entropy", 14, 34, 7, "fp32 copy, statistics twice; two gradients, their sum and its cast"),
        )
    )
