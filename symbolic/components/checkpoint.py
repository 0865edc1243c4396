"""The input that full recompute keeps of a layer instead of everything else."""

from __future__ import annotations

from ..dimensions import BATCH, HEAD_DIM, HIDDEN, SEQUENCE, SEQUENCE_SP
from ..ledger import Component, Place, saved

COMPONENTS = (
    Component(
        "layer_input", "Layer input kept by full recompute", 15, Place.LAYER,
        (
            saved("input", "checkpoint", (SEQUENCE_SP, BATCH, HIDDEN), 2, "megatron_core",
                  "input of the layer", checkpoint="layer", precision=("mixed", "bf16", "fp16", "fp32")),
            saved("input_fp32", "checkpoint", (SEQUENCE_SP, BATCH, HIDDEN), 4, "pytorch",
                  "input of the layer, fp32 under autocast", checkpoint="layer", precision=("autocast",)),
            # FSDP2 casts what a layer is called with, and a checkpoint holds that.
            *(saved(f"rope.{function}", "checkpoint", (SEQUENCE, HEAD_DIM), 2, "torchtitan",
                    f"bf16 {function} table that the layer is called with", checkpoint="layer", rope=("cast",),
                    data_parallel=("fsdp",)) for function in ("cos", "sin")),
        ),
    ),
)
