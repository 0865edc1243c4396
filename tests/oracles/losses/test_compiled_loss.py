"""torchtitan's cross entropy, compiled by PyTorch's own compiler: what it keeps, and what its kernels write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from random import Random

import pytest
import torch
from oracles.instruments.allocator import AllocatorLog
from oracles.instruments.ledger import ledger
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel

from shardmath.symbolic.implementations import TORCHTITAN

COMPILED = TORCHTITAN.with_choices(loss="dtensor_compiled")
#: The model around the loss, of which nothing is counted here.
BESIDE = {"h": 32, "a": 2, "k": 2, "d": 16, "f": 32, "L": 1}


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum up cross entropy as torchtitan 0.2.2 does, in fp32 over all tokens."""
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum", ignore_index=-100)


@pytest.fixture
def compiled(compiler: None) -> Callable[..., Tensor]:
    """The loss, compiled whole."""
    return torch.compile(cross_entropy, fullgraph=True, dynamic=False)


def counted(loss: Callable[..., Tensor], logits: Tensor, labels: Tensor, ranks: int) -> tuple[int, ...]:
    """Bytes that the loss adds and keeps, the most during it, and the most that its backward pass adds."""
    mesh = init_device_mesh("cpu", (ranks,))
    for _ in range(2):  # the first pass compiles
        leaf, value = logits.detach().requires_grad_(), None
        given = leaf if ranks == 1 else DTensor.from_local(leaf, mesh, [Shard(-1)])
        with loss_parallel() if ranks > 1 else nullcontext():
            with AllocatorLog() as forward:
                value = loss(given, labels)
            with AllocatorLog() as backward:
                value.backward()
    return forward.net, forward.peak, backward.peak


@pytest.mark.slow
@pytest.mark.cases(1, 6)
@pytest.mark.parametrize("ranks", [1, 2])
def test_compiled_loss(draw: Random, ranks: int, compiled: Callable[..., Tensor], world: Callable[[int], None]) -> None:
    """The logits are there before the loss, and the loss before its gradients."""
    world(ranks)
    s, b, u = 8 * draw.randint(2, 6), draw.randint(1, 3), 1024 * draw.randint(2, 6) * ranks
    logits, labels = torch.randn(b, s, u // ranks).bfloat16(), torch.randint(0, u, (b, s))
    kept, forward, backward = counted(compiled, logits, labels, ranks)
    moments = (f"stage.loss.{moment}" for moment in ("after_forward", "loss_forward", "loss_backward"))
    given, saved, after, during, gradients = ledger(
        COMPILED, "loss.input", "loss.saved", *moments, s=s, b=b, u=u, t=ranks, sp=int(ranks > 1), B=b, **BESIDE)
    assert given == labels.nbytes
    assert kept + logits.nbytes * (ranks == 1) == saved + after
    assert forward + logits.nbytes == saved + during
    assert backward == gradients - 4
