"""Collectives and messages of one rank: every call, below autograd, with its group and its bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: The whole tensor of an operation: its result (gather), its input (reduce), or all its arguments.
_GATHERS = {"_allgather_base_", "allgather_", "allgather_into_tensor_coalesced_"}
_SCATTERS = {"_reduce_scatter_base_", "reduce_scatter_", "reduce_scatter_tensor_coalesced_"}


class Call(NamedTuple):
    """One call: the operation, the ranks of its group, and the bytes that it makes whole."""

    operation: str
    ranks: tuple[int, ...]
    bytes: int

    @property
    def passes(self) -> int:
        """Passes over the group's ring: an all-reduce is a reduce-scatter and an all-gather."""
        return 2 if self.operation.startswith("allreduce") else 1


class Sent(TorchDispatchMode):
    """Record what this rank exchanges inside of the ``with`` block, in the backward pass too.

    Groups of one rank exchange nothing. Messages count where they are sent, not where they are received.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record a collective or a message, then run it."""
        if func.namespace == "c10d":
            self._record(func.__name__.partition(".")[0], args)
        return func(*args, **kwargs or {})

    def _record(self, name: str, args: Any) -> None:
        group = next(found for one in args if (found := _group(one)) is not None)
        if group.size() == 1 or name in ("recv_", "barrier"):
            return
        output, *rest = args
        given = rest[0] if name in _SCATTERS or name == "alltoall_base_" else output
        size = sum(one.nbytes for one in tree_leaves(given) if isinstance(one, Tensor))
        operation = {"alltoall_base": "alltoall"}.get(name.strip("_"), name.strip("_"))
        operation = "gather" if name in _GATHERS else "scatter" if name in _SCATTERS else operation
        self.calls.append(Call(operation, tuple(dist.get_process_group_ranks(group)), size))

    def over(self, group: Any) -> Traffic:
        """Return the exchanges over a group of this rank."""
        ranks = tuple(dist.get_process_group_ranks(group))
        return Traffic.of(call for call in self.calls if call.ranks == ranks)


class Traffic(NamedTuple):
    """Passes over a ring, and the bytes that they make whole in all."""

    passes: int
    bytes: int

    @classmethod
    def of(cls, calls: Iterable[Call]) -> Traffic:
        """The sum of calls."""
        calls = list(calls)
        return cls(sum(call.passes for call in calls), sum(call.passes * call.bytes for call in calls))


def operations(calls: Iterable[Call]) -> Counter[str]:
    """How often each operation was called."""
    return Counter(call.operation for call in calls)


def _group(argument: Any) -> Any:
    try:
        return dist.ProcessGroup.unbox(argument)
    except (RuntimeError, TypeError):
        return None
