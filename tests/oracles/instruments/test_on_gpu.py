"""Operations and precisions that ``OnGpu`` runs on a CPU are those that PyTorch chooses for a GPU.

Fake tensors of a GPU need none: every operation is chosen, and autocast, and nothing computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from oracles.instruments.on_gpu import OnGpu, RandomState
from oracles.instruments.saved import Saved
from oracles.instruments.storages import tensors_in
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.activations import ACT2FN

from shardmath.models.dense_families import GELU

CASES: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: ACT2FN[name] for name in GELU},
    "softmax": lambda scores: functional.softmax(scores, dim=-1),
    "dropout": lambda hidden: functional.dropout(hidden, 0.1, True),
}


class Operations(TorchDispatchMode):
    """The operations that run, with the precisions of what they return."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[torch.dtype, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and note it."""
        result = func(*args, **kwargs or {})
        made = tuple(one.dtype for one in tensors_in(result))
        if made:  # a fake tensor is asked for its device, too
            self.found.append((str(func), made))
        return result


@contextmanager
def autocast_of_a_gpu(enabled: bool) -> Iterator[None]:
    """``torch.autocast("cuda")``, which refuses to work without a GPU."""
    torch.set_autocast_enabled("cuda", enabled)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.clear_autocast_cache()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("case", list(CASES))
def test_same_operations(case: str, autocast: bool) -> None:
    def run(device: str) -> list[tuple[str, tuple[torch.dtype, ...]]]:
        value = torch.zeros(5, 7, dtype=torch.bfloat16, device=device)
        with Operations() as operations:
            CASES[case](value)
        return operations.found

    with torch.no_grad(), FakeTensorMode(), autocast_of_a_gpu(autocast):
        on_gpu = run("cuda")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast), OnGpu():
        assert run("cpu") == on_gpu


def test_random_state_of_attention_is_that_of_cudnn() -> None:
    """PyTorch takes cuDNN's kernel on an H100; its last results but the mask of tests are a seed and an offset."""
    with torch.no_grad(), FakeTensorMode():
        read = [torch.zeros(2, 4, 64, 32, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        *_, seed, offset, _ = torch.ops.aten._scaled_dot_product_cudnn_attention(*read, None, True, 0.1, True)
    output = torch.zeros(2, 4, 64, 32, dtype=torch.bfloat16, requires_grad=True)
    with Saved() as saved:
        kept = RandomState.apply(output)
    assert kept.shape == output.shape
    assert saved.bytes() == seed.nbytes + offset.nbytes
