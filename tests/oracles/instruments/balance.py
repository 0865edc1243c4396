"""Transformers' load-balancing loss as it was before its pull request 48131, written again from its description."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def one_hot_loss(gate_logits: tuple[Tensor, ...], num_experts: int, top_k: int, attention_mask: Any = None) -> Tensor:
    """The loss of all layers at once: every choice of a token is a row of an int64 mask, which has an fp32 copy."""
    joined = torch.cat(gate_logits, dim=0)
    weights = functional.softmax(joined, dim=-1)
    _, chosen = torch.topk(weights, top_k, dim=-1)
    mask = functional.one_hot(chosen, num_experts)
    share = torch.mean(mask.float(), dim=0)
    probability = torch.mean(weights, dim=0)
    return torch.sum(share * probability.unsqueeze(0)) * num_experts
