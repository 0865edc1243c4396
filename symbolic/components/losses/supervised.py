"""Loss of supervised training in version 1 of LLaMA-Factory: log-probabilities of labels, made of fp32 logits.

Labels are among the inputs of the model, which makes a loss of its own that nobody reads: its log-softmax lives until
the trainer's log-probabilities are there.
"""

from __future__ import annotations

from typing import Any

from ...dimensions import BATCH, SCORED_SEQUENCE, SEQUENCE, VOCAB
from ...functions import Iverson
from ...ledger import Lifetime, Tensor, saved, transient
from ...parameters import symbols
from ...work import Stream

COMPONENTS = ()

b, = symbols("b")
_LOGITS, _NEXT = (SEQUENCE, BATCH, VOCAB), (SCORED_SEQUENCE, BATCH, VOCAB)
_ON: Any = {"loss": ("log_probs_sft",)}
_SRC = "llamafactory_1"


def supervised_rows() -> tuple[Tensor, ...]:
    """Return what the loss keeps and writes; of one sequence the logits in front of labels are a view."""
    once: Any = {"lifetime": Lifetime.ONCE}
    several: Any = {"when": Iverson(b > 1)}
    forward = ("loss_forward",)
    return (
        saved("next_log_softmax", "loss", _NEXT, 4, _SRC, "fp32 log-softmax in front of labels", **once, **_ON),
        saved("next_labels", "loss", _NEXT[:2], 8, _SRC, "int64 labels shifted by one token", **once, **several, **_ON),
        transient("unread_log_softmax", "loss", _LOGITS, 4, _SRC, "fp32 log-softmax of the model's own loss", forward,
                  **_ON),
        transient("unread_logits", "loss", _LOGITS, 2, _SRC, "bf16 logits, returned by the model", forward,
                  precision=("mixed", "bf16", "fp16", "autocast"), **_ON),
        transient("next_logits", "loss", _LOGITS, 4, _SRC, "fp32 logits", forward, **_ON),
        transient("next_logits_copy", "loss", _NEXT, 4, _SRC, "copy of those in front of labels", forward, **several,
                  **_ON),
        transient("next_gradients", "loss", _NEXT, 8, _SRC, "fp32 gradients of log-softmax and of logits",
                  ("loss_backward",), **_ON),
        transient("weighted_value", "loss", (), 4, _SRC, "fp32 loss", ("after_forward", *forward, "loss_backward"),
                  **_ON),
    )


def supervised_work() -> tuple[Stream, ...]:
    """Return the traffic of logits: the model's own loss, copies and log-softmax; gradients and a cast."""
    return (
        Stream("log_probs_sft.steps", "loss", _LOGITS, 28, 22, _SRC,
               "fp32 copy and log-softmax, both twice; gradients of both, a cast", 4, options=_ON),
        Stream("log_probs_sft.copy", "loss", _LOGITS, 8, 8, _SRC, "copy of logits in front of labels, and its gradient",
               when=Iverson(b > 1), options=_ON),
    )
