"""Bytes of torchtune's losses behind a head: kept, and the most in each pass; compiled ones by PyTorch's own compiler.

``LinearCrossEntropyLoss`` is in torchtune's repository (bd2a0fc), in no release up to 0.6.1. Sizes are those of the
allocator, which sees copies inside of operations and what compiled kernels write. It sees buffers inside of matrix
products of a CPU too, which are left out: they are no whole rows of fp32 logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import torch
from oracles.instruments.allocator import AllocatorLog
from torch import Tensor

TABLE = "torchtune_losses"


class _EndError(Exception):
    """The gradient that a pass is counted to is there."""


def _stop(_: Tensor) -> None:
    raise _EndError


def has(row: Mapping[str, str]) -> bool:
    """True for losses that the installed torchtune has."""
    if find_spec("torchtune") is None:
        return False
    return "linear" not in row["loss"] or hasattr(import_module("torchtune.modules.loss"), "LinearCrossEntropyLoss")


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Count bytes beside the head's matrix and the tokens' labels before they are shifted.

    They are those behind the loss, the most until there is one, the most until all logits have a
    gradient, and the most until the head's input has one. A loss that makes logits itself has the last alone.
    """
    b, s, h, u = (int(row[letter]) for letter in "bshu")
    head = torch.nn.Linear(h, u, bias=False, dtype=torch.bfloat16)
    head.weight.requires_grad_(row["head"] == "trained")
    loss = _LOSSES[row["loss"].removesuffix("_compiled")](head, row["loss"].endswith("_compiled"))
    leaf, labels = torch.randn(b, s, h, dtype=torch.bfloat16, requires_grad=True), torch.randint(0, u, (b, s))
    numbers = {}
    for column in ("backward", "whole"):
        for _ in range(2):  # the first pass compiles
            head.weight.grad = None
            torch.zeros(1, requires_grad=True).sum().backward()  # lets go of a pass that was stopped
            with AllocatorLog() as forward:
                value, held = loss(leaf, labels, column)
            with AllocatorLog() as backward:
                _until_stopped(value)
            del value, held
        kept, most = _sums(forward.changes, 4 * u)
        numbers |= {"kept": kept, "forward": most, column: kept + _sums(backward.changes, 4 * u)[1]}
    return numbers


def _until_stopped(value: Tensor) -> None:
    try:
        value.backward()
    except _EndError:
        return
    raise ValueError("the gradient never came")


def _sums(changes: Sequence[int], row: int) -> tuple[int, int]:
    """Return the bytes at the end and the most of them, without buffers that are freed at once and no whole rows."""
    left: list[int] = []
    for change in changes:
        if left and change == -left[-1] < 0 and change % row and -change > row:
            left.pop()
        else:
            left.append(change)
    return sum(left), max(accumulate(left))


#: A loss of a leaf and labels, counted to a moment: its value, and what the recipe holds of it.
_Loss = Callable[[Tensor, Tensor, str], tuple[Tensor, Any]]


def _shifted_by_one(labels: Tensor) -> Tensor:
    return torch.hstack((labels[..., 1:], torch.full((len(labels), 1), -100)))


def _cross_entropy(is_compiled: bool) -> Any:
    loss = torch.nn.CrossEntropyLoss(ignore_index=-100)
    return torch.compile(loss, dynamic=False) if is_compiled else loss


def _whole(head: torch.nn.Linear, is_compiled: bool) -> _Loss:
    cross_entropy = _cross_entropy(is_compiled)

    def run(leaf: Tensor, labels: Tensor, moment: str) -> tuple[Tensor, Any]:
        (hidden := leaf * 1).register_hook(_stop)
        logits = head(hidden)
        if moment == "backward":
            logits.register_hook(_stop)
        logits = logits.float()
        del hidden
        targets = _shifted_by_one(labels).reshape(-1)
        return cross_entropy(logits.reshape(-1, logits.size(-1)), targets), None

    return run


def _shifted(head: torch.nn.Linear, _: bool) -> _Loss:
    cross_entropy = _cross_entropy(False)

    def run(leaf: Tensor, labels: Tensor, moment: str) -> tuple[Tensor, Any]:
        (hidden := leaf * 1).register_hook(_stop)
        own = labels + 0  # the recipe's, on the GPU
        logits = head(hidden)
        if moment == "backward":
            logits.register_hook(_stop)
        logits = logits.float()
        del hidden
        logits = logits[..., :-1, :].contiguous()
        targets = own[..., 1:].contiguous()
        del own
        logits = logits.transpose(1, 2)
        return cross_entropy(logits, targets), (logits, targets)

    return run


def _chunks(head: torch.nn.Linear, is_compiled: bool) -> _Loss:
    loss = import_module("torchtune.modules.loss").CEWithChunkedOutputLoss()
    if is_compiled:
        loss.compute_cross_entropy = torch.compile(loss.compute_cross_entropy, dynamic=False)
    model: Any = SimpleNamespace(output=head, num_output_chunks=loss.num_output_chunks)
    output = import_module("torchtune.modules").TransformerDecoder.chunked_output

    def run(leaf: Tensor, labels: Tensor, moment: str) -> tuple[Tensor, Any]:
        (hidden := leaf * 1).register_hook(_stop)
        logits = output(model, hidden)
        if moment == "backward":
            logits[-1].register_hook(_stop)  # the first that goes on to the head
        del hidden
        return loss(logits, _shifted_by_one(labels)), None

    return run


def _linear(head: torch.nn.Linear, is_compiled: bool) -> _Loss:
    loss = import_module("torchtune.modules.loss").LinearCrossEntropyLoss()
    loss.set_model_output(SimpleNamespace(output=head))
    if is_compiled:
        loss.apply_compile_strategy(dynamic=False)

    def run(leaf: Tensor, labels: Tensor, _: str) -> tuple[Tensor, Any]:
        (hidden := leaf * 1).register_hook(_stop)
        return loss(hidden, _shifted_by_one(labels)), None

    return run


_LOSSES: dict[str, Callable[[torch.nn.Linear, bool], _Loss]] = {
    "torchtune": _whole, "torchtune_shifted": _shifted, "torchtune_chunks": _chunks, "torchtune_linear": _linear,
}
