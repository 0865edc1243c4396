"""Dummy gradients of weights, one for each distinct shape on a rank, against the layers of Megatron-Core's own models.

``get_dummy_wgrad`` of Transformer Engine keeps one 16-bit tensor by shape; each linear layer asks for that of its
weight, and each expert for that of its own matrix.
"""

from __future__ import annotations

from random import Random

import pytest
import torch
from counted import MEGATRON_CPU, values
from megatron.core.activations import squared_relu
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from oracles.instruments.traced import summed
from oracles.megatron_core.megatron_cpu import one_rank
from oracles.megatron_core.megatron_experts import Nothing, WholeLinear, model_of, settings_of, whole_linears
from torch.nn.functional import gelu, relu, silu

from shardmath.symbolic.accounts import kept_rows

pytestmark = pytest.mark.slow

ACTIVATIONS = {"swiglu": silu, "geglu": gelu, "gelu": gelu, "relu": relu, "relu2": squared_relu}
LINEAR = (ColumnParallelLinear, RowParallelLinear, WholeLinear)


@pytest.mark.parametrize("layers", ["dense", "experts"])
@pytest.mark.parametrize("mlp", ACTIVATIONS)
@pytest.mark.parametrize(("heads", "compressed"), [("grouped", 0), ("latent", 40), ("latent", 0)])
def test_one_for_each_shape(
    heads: str, compressed: int, mlp: str, layers: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dense model, or a dense layer before one with routed and shared experts, which have no GeGLU or ReLU.

    Latent attention compresses queries or leaves them as wide as they are.
    """
    if layers == "experts" and mlp in ("geglu", "relu"):
        pytest.skip("not counted")
    draw = Random(f"{heads} {mlp} {layers}")
    t = draw.choice((1, 2)) if heads == "grouped" else 1
    shape = {letter: 8 * draw.randint(1, 40) for letter in ("h", "f", "fe", "fs", "u")}
    shape |= {"t": t, "k": t * draw.randint(1, 3), "d": 16, "dr": 8, "dv": 24, "lq": compressed, "lk": 48,
              "s": 16, "b": 1, "L": 2, "E": 4, "q": 2, "e": 1, "et": t, "ld": 2 - (layers == "experts"), "sgate": 0,
              "mtp": 0, "tied": 0, "sp": int(t > 1)}
    shape["a"] = shape["k"] * draw.randint(1, 3) if heads == "grouped" else shape["k"]
    if heads == "grouped":
        shape |= {"lk": 0, "lq": 0}
    monkeypatch.setattr(torch.cuda, "Stream", Nothing)
    with one_rank(shape, draw), whole_linears():
        settings = settings_of(shape, "alltoall")
        settings.gated_linear_unit, settings.activation_func = mlp in ("swiglu", "geglu"), ACTIVATIONS[mlp]
        settings.bias_activation_fusion = False
        model = model_of(shape, settings)
    shapes = {tuple(module.weight.shape) for module in model.modules() if isinstance(module, LINEAR)}
    implementation = MEGATRON_CPU.with_choices(heads=heads, mlp=mlp, layers=layers, weight_gradient="fused",
                                               peak="megatron_te")
    rows = [row for row in kept_rows(implementation) if "dummy" in row.tensor.name]
    known = {**values({}, "", **shape), **shape, "A": shape["a"] * shape["d"], "K": shape["k"] * shape["d"],
             "v": shape["u"]}
    assert summed(implementation, rows, known) == sum(2 * rows * columns for rows, columns in shapes)
