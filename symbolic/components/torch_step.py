"""Small tensors of PyTorch's own training step: counters of AdamW, the loss and its gradient, shifted labels."""

from __future__ import annotations

from typing import Any

from sympy import Eq, Integer

from ..dimension import ONE, Dimension
from ..dimensions import BATCH, HIDDEN, LAYER_TENSORS, SEQUENCE, SEQUENCE_SP, SHIFTED_SEQUENCE, VOCAB
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor, transient
from ..parameters import symbols

b, p, tied = symbols("b p tied")

_TORCH: Any = {"peak": ("torch",)}
_HUGGINGFACE = ("huggingface", "huggingface_freed")
_AFTER_LOSS = ("head_backward", "layer_backward", "embedding_backward")
_START = ("backward_start",)
_GRADIENT = ("head_backward",)


def _steps(
    name: str, shape: tuple[Dimension, ...], meaning: str, when: Any = ONE, lifetime: Lifetime = Lifetime.ONCE,
) -> Tensor:
    return Tensor(
        name, "optimizer", Role.BUFFER, shape, 4, lifetime, "pytorch", meaning, when=when, options=_TORCH,
    )


COMPONENTS = (
    Component(
        "layer_steps", "Step counters of a layer", 61, Place.LAYER,
        (_steps("layer", (LAYER_TENSORS,), "fp32 step counters of AdamW"),),
        options=_TORCH,
    ),
    Component(
        "first_steps", "Step counters of the first stage", 62, Place.FIRST,
        (_steps("embedding", (), "fp32 step counter of the embedding"),),
        options=_TORCH,
    ),
    Component(
        "last_steps", "Step counters and scalars of the last stage", 95, Place.LAST,
        (
            # Once, however many micro-batches are in flight.
            _steps("final_norm", (), "fp32 step counter of the final norm", lifetime=Lifetime.SHARED),
            _steps("head", (), "fp32 step counter of the head", Integer(1) - tied * Iverson(Eq(p, 1)),
                   Lifetime.SHARED),
            transient("loss", "loss", (), 8, "pytorch", "fp32 loss and its gradient", _AFTER_LOSS, **_TORCH),
            transient("loss_while_reduced", "loss", (), 8, "pytorch", "fp32 loss and its gradient", ("last_reduce",),
                      data_parallel=("fsdp",), pipeline=("own",)),
            transient("loss_while_head_reduced", "loss", (), 8, "pytorch", "fp32 loss and its gradient",
                      ("head_reduce",), data_parallel=("fsdp",), units=("ends",), pipeline=("own",)),
            transient("loss_at_start", "loss", (), 8, "pytorch", "fp32 loss and its gradient", _START,
                      data_parallel=("fsdp",), units=("root",)),
            transient("labels_at_start", "loss", (SEQUENCE, BATCH), 8, "transformers",
                      "int64 labels shifted by one token",
                      _START, when=Iverson(b > 1), loss=_HUGGINGFACE, data_parallel=("fsdp",)),
            transient("padded_labels_at_start", "loss", (SHIFTED_SEQUENCE, BATCH), 8, "transformers",
                      "int64 labels with one more, of which the shifted ones are a view",
                      _START, when=Iverson(b <= 1), loss=_HUGGINGFACE, data_parallel=("fsdp",)),
            transient("logits_gradient", "head", (SEQUENCE, BATCH, VOCAB), 2, "pytorch", "bf16 gradient of the logits",
                      _GRADIENT, **_TORCH),
            transient("weight_gradient", "head", (VOCAB, HIDDEN), 2, "pytorch", "bf16 gradient of the head's weight",
                      _GRADIENT, **_TORCH),
            transient("input_gradient", "head", (SEQUENCE, BATCH, HIDDEN), 2, "pytorch",
                      "bf16 gradient of the head's input", _GRADIENT, **_TORCH),
            transient("norm_gradient", "head", (SEQUENCE_SP, BATCH, HIDDEN), 2, "pytorch",
                      "bf16 gradient of the final norm's input", ("head_reduce",),
                      data_parallel=("fsdp",), units=("ends",), pipeline=("own",)),
            transient("embedding_gradient", "embedding", (SEQUENCE_SP, BATCH, HIDDEN), 2, "pytorch",
                      "bf16 gradient of the embedding's output", ("embedding_backward",), **_TORCH,
                      pipeline=("own",)),
        ),
        options=_TORCH,
    ),
)
