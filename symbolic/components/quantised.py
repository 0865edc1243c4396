"""Rows of the FP8 or FP4 input that a linear layer keeps for its weights' gradient, in place of the 16-bit one.

Read in Transformer Engine 2.11: of each input the copy by columns is kept, with its scales. A layer that normalises its
input and gathers it over sequence-parallel ranks keeps the FP4 copy by rows as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dimension import ONE, Dimension
from ..dimensions import (
    EXPERT_FFN_SCALES,
    EXPERT_FFN_SCALES_PADDED,
    EXPERT_MAGNITUDES,
    EXPERTS,
    FFN_SCALES,
    FFN_SCALES_PADDED,
    HIDDEN_SCALES,
    HIDDEN_SCALES_PADDED,
    SHARED_FFN_SCALES,
    SHARED_FFN_SCALES_PADDED,
)
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved
from ..parameters import symbol

ts = symbol("ts")

#: Recipes with one scale for a tensor, with scales of blocks, and with two elements in a byte.
SCALED, BLOCKS, PACKED = ("delayed", "current"), ("block", "mx"), ("nvfp4",)
EVERY = (*SCALED, *BLOCKS, *PACKED)
#: Layers that keep the 16-bit input itself, which others keep anyway, quantise it once more in the backward pass. With
#: scales from earlier steps they cannot.
ONCE_ONLY = ("delayed",)
AGAIN = ("none", *(recipe for recipe in EVERY if recipe not in ONCE_ONLY))
#: Bytes of 32 elements in NVFP4: a half each, and a scale for 16.
PACKED_BYTES, PACKED_SCALES = 16, 2
#: Bytes and dimensions of the fp32 magnitudes of NVFP4, by dimensions of as many tensors.
MAGNITUDES: Mapping[tuple[Dimension, ...], tuple[int, tuple[Dimension, ...]]] = {
    (): (4, ()), (EXPERTS,): (1, (EXPERT_MAGNITUDES,)),
}
#: Scales of widths that need not be multiples of 128, and the same in whole tiles. Of a copy by columns a tile has 128
#: columns; one by rows in NVFP4 has none in part, as widths are multiples of 64.
PADDED: Mapping[Dimension, Dimension] = {
    HIDDEN_SCALES: HIDDEN_SCALES_PADDED, FFN_SCALES: FFN_SCALES_PADDED, EXPERT_FFN_SCALES: EXPERT_FFN_SCALES_PADDED,
    SHARED_FFN_SCALES: SHARED_FFN_SCALES_PADDED,
}

_TE = "transformer_engine"
_TRAINED = ("none",)
COMPONENTS = (
    Component(
        "hadamard", "Hadamard matrix of NVFP4", 95, Place.STAGE,
        (
            Tensor("matrix", "hadamard", Role.BUFFER, (), 512, Lifetime.ONCE, _TE,
                   "bf16 matrix of 16 x 16 with random signs, for copies by columns of inputs and gradients"),
        ),
        options={"fp8": PACKED},
    ),
)


def quantised(
    name: str, module: str, tokens: tuple[Dimension, ...], widths: tuple[Dimension, Dimension], *,
    recipes: tuple[str, ...] = EVERY, tensors: tuple[Dimension, ...] = (), normed: bool = False,
    adapted: tuple[str, ...] = (), **more: Any,
) -> tuple[Tensor, ...]:
    """Return the rows of an input of ``widths``: its elements, and the bytes of its scales of blocks.

    ``tensors`` are dimensions of as many tensors with a scale of their own, such as one for each expert. ``normed``
    is True for a layer that normalises its input itself. A frozen layer keeps nothing, but one with an adapter that
    hands out what its norm made keeps the copy by rows: ``adapted`` are the options of ``adapters`` with such a one.
    """
    width, scales = widths
    tiles = PADDED.get(scales, scales)
    trained = {**more, "adapters": _TRAINED}
    kept = {**more, "adapters": (*_TRAINED, *adapted)}
    whole, scaled, blocks, packed = (
        tuple(recipe for recipe in recipes if recipe in kind) for kind in ((*SCALED, *BLOCKS), SCALED, BLOCKS, PACKED)
    )
    rows = [saved(f"{name}_fp8", module, (*tokens, width), 1, _TE, "FP8 input of the projection", fp8=whole, **kept)]
    if scaled:
        rows.append(saved(f"{name}_scale", module, tensors, 4, _TE, "fp32 inverse scale of the input",
                          fp8=tuple(sorted(scaled)), **kept))
    if blocks:
        rows.append(saved(f"{name}_scales", module, (*tokens, tiles), 1, _TE,
                          "scales of the input: 8 bits for 32 elements, or fp32 for 128", fp8=blocks, **kept))
    if packed:
        size, magnitudes = MAGNITUDES[tensors]
        rows += [
            saved(f"{name}_fp4", module, (*tokens, scales), PACKED_BYTES, _TE, "FP4 input: two elements in a byte",
                  fp8=packed, **kept),
            saved(f"{name}_fp4_scales", module, (*tokens, tiles), PACKED_SCALES, _TE,
                  "its 8-bit scales for 16, by columns", fp8=packed, **trained),
            saved(f"{name}_magnitude", module, magnitudes, size, _TE, "fp32 largest magnitude of the input", fp8=packed,
                  **kept),
        ]
    if packed and adapted:
        rows.append(saved(f"{name}_fp4_scales_frozen", module, (*tokens, scales), PACKED_SCALES, _TE,
                          "its 8-bit scales for 16, by rows in a frozen layer", fp8=packed,
                          **{**more, "adapters": adapted}))
    if packed and normed:
        when = trained.pop("when", ONE) * Iverson(ts > 1)
        rows.append(saved(f"{name}_fp4_rows", module, (*tokens, scales), PACKED_BYTES + PACKED_SCALES, _TE,
                          "the same by rows, kept where sequence-parallel ranks gather it", fp8=packed, when=when,
                          **trained))
    return tuple(rows)
