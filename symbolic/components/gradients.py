"""Gradients of the residual stream: what the backward pass of a layer starts from."""

from __future__ import annotations

from ..choices import MEGATRON_PEAKS
from ..dimensions import BATCH, HIDDEN, SEQUENCE_SP
from ..ledger import Component, Place, transient

COMPONENTS = (
    Component(
        "residual_gradient", "Gradient of the residual stream", 95, Place.STAGE,
        (
            transient("gradient", "residual", (SEQUENCE_SP, BATCH, HIDDEN), 2, "megatron_training",
                      "bf16 gradient of the layer's output, received from the next stage or from the final norm",
                      ("layer_backward",)),
        ),
        note="Of the layers of a stage the last one has the most beside it: nothing of its micro-batch is freed yet.",
        options={"peak": MEGATRON_PEAKS},
    ),
)
