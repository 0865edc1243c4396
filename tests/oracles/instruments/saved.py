"""Tensors that autograd saves for the backward pass, as its own hooks report them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from oracles.instruments.storages import Storages, Tally, storages_in
from torch import Tensor, dtype
from torch.autograd.graph import saved_tensors_hooks


class Saved(saved_tensors_hooks):
    """Count what the forward passes inside of the ``with`` block save.

    Each storage is counted once and only while it is alive, so the outputs that hold the graph must be alive
    too. Tensors that a function keeps outside of autograd's hooks, as the checkpoint of PyTorch keeps its inputs,
    are not seen; ``oracles.instruments.live`` sees them. ``known`` is not counted: models, inputs, tensors.
    """

    def __init__(self, *known: Any) -> None:
        self._by_type: defaultdict[dtype, Storages] = defaultdict(Storages)
        self._storages, self._tally = Storages(), Tally(storages_in(*known))
        super().__init__(self._pack, lambda tensor: tensor)

    def __enter__(self) -> Saved:
        """Start to count."""
        super().__enter__()
        return self

    def _pack(self, tensor: Tensor) -> Tensor:
        self._storages.add(tensor)
        self._by_type[tensor.dtype].add(tensor)
        self._tally.add(tensor)
        return tensor.detach()  # an output that its own node saves would else keep itself alive

    @property
    def now(self) -> int:
        """Saved bytes that are alive."""
        return self._tally.now

    @property
    def peak(self) -> int:
        """Most saved bytes that were alive at the same time."""
        return self._tally.peak

    def bytes(self, *without: Any, of: dtype | None = None) -> int:
        """Bytes that are saved now, of one type if it is named, less the storages of ``without``: models, tensors."""
        storages = self._storages if of is None else self._by_type[of]
        return storages.bytes(storages_in(*without))


def functions_of(result: Tensor, kind: str) -> list[Any]:
    """List the functions of autograd behind a tensor, each once, by how their names begin."""
    left, seen = [result.grad_fn], []
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.append(node)
            left += [following for following, _ in node.next_functions]
    return [node for node in seen if node.name().startswith(kind)]
