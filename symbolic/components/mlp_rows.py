"""Rows that all dense MLPs have: the input of their first projection, and when their projections have biases."""

from __future__ import annotations

from typing import Any

from ..dimensions import BATCH, HIDDEN, SEQUENCE_SP
from ..ledger import Tensor, saved
from ..parameters import symbols

lbias, mbias = symbols("lbias mbias")

#: The projections of the MLP have biases if they alone have, or if all projections have.
MLP_BIAS = mbias + lbias - mbias * lbias
COMPONENTS = ()


def mlp_input(module: str, meaning: str, **options: Any) -> tuple[Tensor, ...]:
    """Return the 16-bit input of a projection: the output of the MLP's norm, or with one norm that of attention's."""
    return tuple(
        saved(f"{module}.{name}", module, (SEQUENCE_SP, BATCH, HIDDEN), 2, "megatron_core", meaning, storage=storage,
              precision=("mixed", "bf16", "fp16", "fp32"), residual=residuals, **options)
        for name, storage, residuals in (
            ("input", "mlp.normed", ("sequential", "parallel")),
            ("input_of_layer", "attention.normed", ("parallel_one",)),
        )
    )
