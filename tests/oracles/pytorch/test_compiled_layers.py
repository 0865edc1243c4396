"""Bytes that a layer of torchtitan keeps where PyTorch's own compiler makes one graph of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import torch
from oracles.instruments.ledger import ledger
from oracles.pytorch.compiled_layers import Layer, angles, kept, shared_out
from torch.distributed.device_mesh import init_device_mesh

from shardmath.symbolic.implementations import TORCHTITAN

COMPILED = TORCHTITAN.with_choices(compile="layers")
#: Choices and letters of each kind of recompute.
RECOMPUTE = {"none": ({}, {}), "full": ({}, {"rfull": 1}), "selective": ({"recompute_saves": "ops"}, {"rfull": 1})}
#: Components with the rows that a recomputed layer keeps.
KEPT = ("layer_input", "saved_ops", "saved_ops_mlp")


@pytest.mark.slow
@pytest.mark.cases(1, 4)
@pytest.mark.parametrize("normed", [False, True], ids=["llama", "qwen3"])
@pytest.mark.parametrize(("recompute", "ranks"), [
    ("none", 1), ("full", 1), ("selective", 1), ("none", 2), ("selective", 2)])
def test_compiled_layer(
    draw: Random, recompute: str, ranks: int, normed: bool, compiler: None, world: Callable[[int], None],
) -> None:
    """On two ranks PyTorch 2.13 stops with an error of its own where a checkpoint of a whole layer is compiled."""
    world(ranks)
    choices, letters = RECOMPUTE[recompute]
    k = ranks * draw.choice((1, 2))
    sizes = {"h": 32 * draw.randint(1, 4) * ranks, "k": k, "a": k * draw.choice((1, 2, 3)), "d": 16,
             "f": 32 * draw.randint(1, 6) * ranks}
    s, b = 16 * draw.randint(2, 5), draw.randint(1, 3)
    layer = Layer(**sizes, normed=normed).bfloat16()
    if ranks > 1:
        layer = shared_out(layer, init_device_mesh("cpu", (ranks,)))
    tokens = torch.randn(b, s // ranks, sizes["h"]).bfloat16().requires_grad_()
    counted = kept(layer, tokens * 1, angles(s, sizes["d"], normed), recompute)
    implementation = COMPILED.with_choices(**choices, **({"rope": "cast"} if normed else {}))
    terms = ("layer.saved",) if recompute == "none" else (f"{part}.saved" for part in KEPT)
    saved = ledger(implementation, *terms, s=s, b=b, t=ranks, sp=int(ranks > 1), B=b, L=1, u=64,
                      qkn=int(normed), **letters, **sizes)
    assert counted == sum(saved)
