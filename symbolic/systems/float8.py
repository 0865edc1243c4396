"""FP8 products of torchao in linear layers: inputs and weights are kept in 16 bits and quantised again when read.

So a layer keeps as much as without it (``matmul_with_hp_or_float8_args`` of torchao 0.18). FP8 copies of the matrices
of one product, and their scales, live while it runs; they are left out, and so is the shorter time of products.
"""

from __future__ import annotations

from ..axis import Axis
from .system import Aspect, System

NAME = "float8"
OPTIONS = {
    "none": "products in 16 bits",
    "tensorwise": "FP8 products with one scale for a matrix, 16-bit matrices kept",
    "rowwise": "FP8 products with a scale for every row, 16-bit matrices kept",
}

SYSTEM = System(
    Axis(NAME, "FP8 products of torchao", OPTIONS, rowless=tuple(OPTIONS)), ("torchtitan",),
    words="FP8 products of torchao", changes=(Aspect.PRODUCTS,),
)
