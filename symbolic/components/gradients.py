"""Gradients of the residual stream: what the backward pass of a layer starts from."""

from __future__ import annotations

from typing import Any

from ..choices import MEGATRON_PEAKS
from ..dimensions import BATCH, HIDDEN, SEQUENCE_SP
from ..ledger import Component, Place, Tensor, transient


def _row(name: str, sites: tuple[str, ...], layers: str) -> Tensor:
    options: Any = {"layers": (layers,)}
    return transient(name, "residual", (SEQUENCE_SP, BATCH, HIDDEN), 2, "megatron_training",
                     "bf16 gradient of the layer's output, received from the next stage or from the final norm", sites,
                     **options)


COMPONENTS = (
    Component(
        "residual_gradient", "Gradient of the residual stream", 95, Place.STAGE,
        (
            _row("gradient", ("layer_backward",), "dense"),
            # Layers with experts add it to that of their MLP when this one has gone backward.
            _row("gradient_beside_experts", ("combine_backward", "experts_backward", "layer_backward"), "experts"),
        ),
        note="Of the layers of a stage the last one has the most beside it: nothing of its micro-batch is freed yet.",
        options={"peak": MEGATRON_PEAKS},
    ),
)
