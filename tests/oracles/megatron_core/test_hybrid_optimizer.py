"""Megatron-Core's hybrid optimizer against the ledger: which parameters it moves to the host, and what stays.

Tensors that it takes for ones on a GPU are marked here; it asks for nothing but that mark when it shares them out.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from oracles.instruments.ledger import ledger
from oracles.megatron_core.megatron_cpu import config, one_rank
from oracles.megatron_core.megatron_data import hybrid
from oracles.megatron_core.test_megatron_optimizer import chunks_of, random_layout
from torch import Tensor
from torch.overrides import TorchFunctionMode

from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.ledger import Role
from shardmath.symbolic.parallel.data import share_on_gpu
from shardmath.symbolic.parameters import symbols

(OFFLOADED,) = symbols("oo")
_IS_CUDA = Tensor.is_cuda.__get__  # type: ignore[attr-defined]


class MarkedAsCuda(TorchFunctionMode):
    """Take tensors for ones on a GPU unless they were moved to the host."""

    def __init__(self) -> None:
        """Start with nothing on the host."""
        super().__init__()
        self.on_host: set[int] = set()
        self.alive: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer where a tensor is; what is made from a tensor lies where it does."""
        if func == _IS_CUDA:
            return id(args[0]) not in self.on_host
        if func is Tensor.pin_memory:
            return args[0]
        result = func(*args, **(kwargs or {}))
        if func is Tensor.cpu:
            result = result.clone()
        if isinstance(result, Tensor) and (func is Tensor.cpu or (args and id(args[0]) in self.on_host)):
            self.on_host.add(id(result))
            self.alive.append(result)
        return result


@pytest.mark.cases(10, 100)
@pytest.mark.parametrize("kind", ["cpu", "cpu_moments"])
def test_states_on_the_gpu(draw: Random, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``cpu`` it is given 16-bit weights, with ``cpu_moments`` the distributed optimizer's own fp32 weights."""
    shape = random_layout(draw) | {"zero1": 0, "w": 4}
    percent = draw.choice((0, 100, draw.randint(1, 99)))
    with one_rank(shape, draw):
        chunks = chunks_of(shape, config(shape))
        bits = torch.bfloat16 if kind == "cpu" else torch.float32
        parameters = [one.detach().to(bits) for chunk in chunks for one in chunk.parameters()]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    with MarkedAsCuda():
        optimizer = hybrid(parameters, percent / 100)
    on_gpu = [one for group in optimizer.gpu_param_groups for one in group["params"]]
    for one in on_gpu:
        one.grad = torch.zeros_like(one)
    if on_gpu:
        optimizer.gpu_optimizer.step()
    states = sum(
        kept.numel() * kept.element_size()
        for state in (optimizer.gpu_optimizer.state.values() if on_gpu else ())
        for name, kept in state.items() if name != "step"
    )
    own = on_gpu if kind == "cpu" else parameters
    counted = states + sum(one.numel() * one.element_size() for one in own)

    # The ledger has the wanted share; the optimizer moves whole parameters until it is reached.
    (whole,) = ledger(MEGATRON, "stage.optimizer", **shape)
    assert whole == 12 * sum(one.numel() for one in parameters)
    kept = share_on_gpu(Role.OPTIMIZER, MEGATRON.with_choices(optimizer_offload=kind).choices)
    share, moved = whole * kept.subs(OFFLOADED, percent), 12 if kind == "cpu" else 8
    if percent in (0, 100):
        assert counted == share
    else:
        assert share - moved * max(one.numel() for one in parameters) < counted <= share
    assert all(one.dtype == torch.float32 for one in on_gpu)
