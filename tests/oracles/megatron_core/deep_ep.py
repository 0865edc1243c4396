"""Stand-ins for DeepEP and HybridEP: they allocate what the libraries' documented calls return, and send nothing.

All ranks of the group are taken to have this rank's tokens and choices. Shapes and types of results and handles are
those of DeepEP 1.2.1 (``intranode_dispatch``, beyond eight ranks ``internode_dispatch``) and of its branch hybrid-ep
in one NVLink domain (``metadata_preprocessing``), whose maps of chunks are left out.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import reload
from types import ModuleType
from typing import Any

import pytest
import torch
from megatron.core.transformer.moe import fused_a2a, token_dispatcher
from torch import Tensor

CHANNELS = 10  # half of the streaming multiprocessors that DeepEP uses
PEERS = 8  # ranks of a server
_NAMES = ("fused_dispatch", "fused_combine", "set_deepep_num_sms", "hybrid_ep_dispatch", "hybrid_ep_combine")


@dataclass
class Last:
    """Tokens that arrived at the rank in the last exchange, and those that its experts work on."""

    arrived: int = 0
    sorted: int = 0


LAST = Last()


class EventOverlap:
    """An event of a GPU, which orders what is in order already."""

    def __init__(self, event: Any = None) -> None:
        """Remember nothing."""

    def current_stream_wait(self) -> None:
        """Return at once."""


class Config:
    """Sizes of a buffer, of which nothing is made."""

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, ranks: int) -> int:
        """Return no bytes."""
        return 0

    get_rdma_buffer_size_hint = get_nvl_buffer_size_hint


def handle_shapes(tokens: int, received: int, ranks: int) -> list[tuple[int, ...]]:
    """Return the shapes of a handle's int32 tensors; beyond a server every token is taken to reach each server."""
    sums = [(ranks, CHANNELS)] * 2
    if ranks <= PEERS:
        return [*sums, (ranks, ranks), (received,), (tokens, ranks)]
    servers = ranks // PEERS
    return [*sums, *[(servers, CHANNELS)] * 2, (servers,), (ranks,), (received, 2), (tokens, servers),
            (tokens * servers, PEERS)]


class Buffer:
    """DeepEP's buffer: every token is sent once to every rank that has experts of it."""

    def __init__(self, group: Any, nvl: int, rdma: int) -> None:
        self.group, self.num_nvl_bytes, self.num_rdma_bytes = group, nvl, rdma

    @staticmethod
    def get_dispatch_config(ranks: int) -> Config:
        """Return sizes."""
        return Config()

    get_combine_config = get_dispatch_config

    @staticmethod
    def set_num_sms(number: int) -> None:
        """Use ``CHANNELS`` all the same."""

    def get_dispatch_layout(self, chosen: Tensor, experts: int, **_: Any) -> tuple[Any, ...]:
        """Tell which ranks every token goes to, and how many of them."""
        ranks = self.group.size()
        in_rank = torch.zeros(len(chosen), ranks, dtype=torch.bool)
        in_rank.scatter_(1, chosen // (experts // ranks), True)
        return (torch.zeros(ranks, dtype=torch.int32), None, torch.zeros(experts, dtype=torch.int32), in_rank,
                EventOverlap())

    def dispatch(
        self, hidden: Tensor, handle: Any = None, topk_idx: Tensor | None = None, topk_weights: Tensor | None = None,
        is_token_in_rank: Tensor | None = None, num_tokens_per_expert: Tensor | None = None, **_: Any,
    ) -> tuple[Any, ...]:
        """Allocate received tokens; with a handle, the gradients of results as they are sent again."""
        if handle is not None:
            return (hidden.new_zeros(handle[0], hidden.shape[1]), None, None, None, None, EventOverlap())
        ranks, local = self.group.size(), len(num_tokens_per_expert) // self.group.size()
        mine = self.group.rank() * local
        here = (topk_idx >= mine) & (topk_idx < mine + local)
        kept = here.any(1)
        indices = torch.where(here, topk_idx - mine, -1)[kept].repeat(ranks, 1)
        weights = torch.where(here, topk_weights, 0.0)[kept].repeat(ranks, 1)
        counts = [int((indices == expert).sum()) for expert in range(local)]
        tokens, received = len(hidden), len(indices)
        LAST.arrived, LAST.sorted = received, sum(counts)
        made = (received, tokens, is_token_in_rank, *(
            torch.empty(*shape, dtype=torch.int32) for shape in handle_shapes(tokens, received, ranks)))
        return hidden.new_zeros(received, hidden.shape[1]), indices, weights, counts, made, EventOverlap()

    def combine(self, hidden: Tensor, handle: Any, topk_weights: Tensor | None = None, **_: Any) -> tuple[Any, ...]:
        """Allocate the sums of results for every token, and of the gradients of its weights."""
        tokens = handle[1]
        weights = None if topk_weights is None else topk_weights.new_zeros(tokens, topk_weights.shape[1])
        return hidden.new_zeros(tokens, hidden.shape[1]), weights, EventOverlap()


class HybridEPBuffer:
    """HybridEP's buffer: tokens are sorted by expert as they arrive."""

    def __init__(self, group: Any, **_: Any) -> None:
        """Allocate nothing: the buffer lies outside of PyTorch."""
        self.group = group

    def dispatch_with_permute(
        self, *, hidden: Tensor, routing_map: Tensor | None = None, probs: Tensor | None = None, handle: Any = None,
        num_of_experts_per_rank: int = 0, num_permuted_tokens: Any = None, **_: Any,
    ) -> tuple[Any, ...]:
        """Allocate sorted tokens and their weights; with a handle, the gradients of results as they are sent again."""
        if handle is not None:
            return hidden.new_zeros(int(num_permuted_tokens), hidden.shape[1]), None, None, None, handle
        tokens, ranks, local = len(hidden), self.group.size(), num_of_experts_per_rank
        mine = self.group.rank() * local
        counts = routing_map[:, mine:mine + local].sum(0) * ranks
        sorted_tokens, everywhere = int(counts.sum()), tokens * ranks
        LAST.arrived, LAST.sorted = 0, sorted_tokens
        made = (torch.empty(tokens, ranks, dtype=torch.int32), torch.empty(tokens, dtype=torch.bool),
                torch.empty(everywhere, local, dtype=torch.bool), torch.empty(everywhere, local, dtype=torch.int32),
                tokens, probs.shape[1])
        return hidden.new_zeros(sorted_tokens, hidden.shape[1]), torch.zeros(sorted_tokens), None, counts, made

    def combine_with_unpermute(self, *, hidden: Tensor, handle: Any, probs: Tensor | None = None, **_: Any) -> Any:
        """Allocate the sums of results for every token, and of the gradients of its weights."""
        *_, tokens, experts = handle
        return hidden.new_zeros(tokens, hidden.shape[1]), None if probs is None else torch.zeros(tokens, experts)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Megatron-Core find the stand-ins as the libraries, until the test ends."""
    library, parts = ModuleType("deep_ep"), ModuleType("deep_ep.utils")
    library.Buffer, library.HybridEPBuffer = Buffer, HybridEPBuffer
    parts.EventHandle, parts.EventOverlap = object, EventOverlap
    monkeypatch.setitem(sys.modules, "deep_ep", library)
    monkeypatch.setitem(sys.modules, "deep_ep.utils", parts)
    reload(fused_a2a)  # which finds them, and is what it was before for all who do not ask it again
    for name in _NAMES:
        monkeypatch.setattr(token_dispatcher, name, getattr(fused_a2a, name))
