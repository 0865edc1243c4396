"""torchtitan's cross entropy under ``torch.compile``: logits are read again, not copied to fp32.

The compiler makes the log-softmax anew from 16-bit logits in the backward pass, and writes their 16-bit gradient in the
same kernel. With tensor parallelism sums over ranks lie between the kernels, so fp32 logits less their maximum are
written, and the fp32 log-softmax is kept.
"""

from __future__ import annotations

from typing import Any

from ...dimensions import BATCH, SEQUENCE, VOCAB
from ...functions import Iverson
from ...ledger import Lifetime, Role, Tensor, saved, transient
from ...parameters import symbols
from ...work import Stream

(t,) = symbols("t")

COMPONENTS = ()

NAME = "dtensor_compiled"
_LOGITS, _TOKENS = (SEQUENCE, BATCH, VOCAB), (SEQUENCE, BATCH)
_FORWARD, _BACKWARD = ("loss_forward",), ("loss_backward",)
_WHOLE, _SHARDED = Iverson(t <= 1), Iverson(t > 1)
_ON: Any = {"loss": (NAME,)}


def compiled_rows() -> tuple[Tensor, ...]:
    """Return what the compiled kernels keep and write, for whole and for sharded vocabularies."""
    src = "torchtitan"
    return (
        saved("compiled_logits", "loss", _LOGITS, 2, src, "bf16 logits, read again in the backward pass",
              lifetime=Lifetime.ONCE, when=_WHOLE, **_ON),
        saved("compiled_statistics", "loss", _TOKENS, 8, src, "fp32 maxima and logarithms of sums of exponentials",
              lifetime=Lifetime.ONCE, when=_WHOLE, **_ON),
        saved("compiled_log_softmax", "loss", _LOGITS, 4, src, "fp32 log-softmax of the rank's vocabulary",
              lifetime=Lifetime.ONCE, when=_SHARDED, **_ON),
        saved("compiled_mask", "loss", _TOKENS, 1, src, "bool mask of counted labels", lifetime=Lifetime.ONCE,
              when=_SHARDED, **_ON),
        Tensor("labels_compiled", "loss", Role.INPUT, _TOKENS, 8, Lifetime.ONCE, src, "int64 labels, an input",
               options=_ON),
        transient("compiled_logits_held", "loss", _LOGITS, 2, src, "bf16 logits, held by the trainer", _FORWARD,
                  when=_SHARDED, **_ON),
        transient("compiled_shifted", "loss", _LOGITS, 4, src, "fp32 logits less their maximum", _FORWARD,
                  when=_SHARDED, **_ON),
        transient("compiled_sums", "loss", _TOKENS, 12, src, "fp32 maxima, logarithms of sums, and logits of labels",
                  _FORWARD, when=_SHARDED, **_ON),
        transient("compiled_value", "loss", (), 4, src, "fp32 loss", ("after_forward", *_FORWARD), **_ON),
        transient("compiled_value_backward", "loss", (), 8, src, "fp32 loss and its gradient", _BACKWARD, **_ON),
        transient("compiled_scales", "loss", _TOKENS, 4, src, "fp32 gradients of the labels' log-probabilities",
                  _BACKWARD, when=_WHOLE, **_ON),
        transient("compiled_gradient", "loss", _LOGITS, 2, src, "bf16 gradient of the logits", _BACKWARD, **_ON),
    )


def compiled_work() -> tuple[Stream, ...]:
    """Return the traffic of the logits in compiled kernels."""
    return tuple(
        Stream(f"{NAME}.{name}", "loss", _LOGITS, forward, backward, "torchtitan", meaning, kernels, when=when,
               options=_ON)
        for name, when, forward, backward, kernels, meaning in (
            ("steps", _WHOLE, 4, 4, 2, "maximum and sum of exponentials; the gradient"),
            ("sharded_steps", _SHARDED, 18, 6, 4, "maximum, sum, shifted logits and log-softmax; the gradient"),
        )
    )
