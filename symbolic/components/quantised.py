"""Rows of the FP8 input that a linear layer keeps for its weights' gradient, in place of the 16-bit one.

Read in Transformer Engine 2.11: of each input the copy by columns is kept, with its scales.
"""

from __future__ import annotations

from typing import Any

from ..dimension import Dimension
from ..ledger import Component, Tensor, saved

#: Recipes of FP8 with one scale for a tensor, and with scales of blocks.
SCALED, BLOCKS = ("delayed", "current"), ("block", "mx")
EVERY = (*SCALED, *BLOCKS)
#: Layers that keep the 16-bit input itself, which others keep anyway, quantise it once more in the backward pass. With
#: scales from earlier steps they cannot.
ONCE_ONLY = ("delayed",)
COMPONENTS: tuple[Component, ...] = ()


def quantised(
    name: str, module: str, tokens: tuple[Dimension, ...], widths: tuple[Dimension, Dimension], *,
    recipes: tuple[str, ...] = EVERY, tensors: tuple[Dimension, ...] = (), **more: Any,
) -> tuple[Tensor, ...]:
    """Return the rows of an input of ``widths``: its elements, and the bytes of its scales of blocks.

    ``tensors`` are dimensions of as many tensors with a scale of their own, such as one for each expert.
    """
    width, scales = widths
    te, scaled, blocks = "transformer_engine", set(recipes) & set(SCALED), set(recipes) & set(BLOCKS)
    rows = [saved(f"{name}_fp8", module, (*tokens, width), 1, te, "FP8 input of the projection", fp8=recipes, **more)]
    if scaled:
        rows.append(saved(f"{name}_scale", module, tensors, 4, te, "fp32 inverse scale of the input",
                          fp8=tuple(sorted(scaled)), **more))
    if blocks:
        rows.append(saved(f"{name}_scales", module, (*tokens, scales), 1, te,
                          "scales of the input: 8 bits for 32 elements, or fp32 for 128", fp8=tuple(sorted(blocks)),
                          **more))
    return tuple(rows)
