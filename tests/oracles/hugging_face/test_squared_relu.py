"""An MLP with the square of ReLU saves as many bytes as one with GELU, under which name Nemotron is estimated."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import torch
from oracles.instruments.saved import Saved
from torch.nn.functional import gelu, relu


def saved_bytes(activation: Callable[[torch.Tensor], torch.Tensor], tokens: int, h: int, f: int) -> int:
    """Return the saved tensors of up projection, activation and down projection, without weights."""
    up, down = (torch.nn.Linear(*sizes, bias=False, dtype=torch.bfloat16) for sizes in ((h, f), (f, h)))
    inputs = torch.randn(tokens, h, dtype=torch.bfloat16)
    with Saved(up, down) as saved:
        result = down(activation(up(inputs)))
    assert result.requires_grad
    return saved.bytes(up, down)


@pytest.mark.cases(5, 100)
def test_squared_relu_is_gelu_in_bytes(draw: Random) -> None:
    tokens, h, f = (draw.randint(1, 40) for _ in range(3))
    squared = saved_bytes(lambda hidden: torch.pow(relu(hidden), 2), tokens, h, f)
    assert squared == saved_bytes(gelu, tokens, h, f) == 2 * tokens * (h + 2 * f)
