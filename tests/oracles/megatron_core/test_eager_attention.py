"""Attention in single operations over a rank's heads, in the order of Aleph Alpha's scaling (revision 737f855).

Its package starts a cluster, so the steps are made here: heads of keys and values are repeated by a view and put side
by side, scores are a batched product, the softmax is in fp32 and cast back. The mask, which every layer makes, is a
bool that no row has.
"""

from __future__ import annotations

from random import Random

import pytest
import torch
from counted import DEFAULTS
from oracles.instruments.saved import Saved
from oracles.instruments.traced import summed_rows
from torch import Tensor

from shardmath.symbolic.implementations import MEGATRON

EAGER = MEGATRON.with_choices(attention="eager", softmax="fp32")
ROWS = [f"attention.{name}" for name in (
    "q", "k.repeated", "k.one_head", "v.repeated", "v.one_head", "probabilities_fp32", "probabilities")]


def repeated(heads: Tensor, times: int) -> Tensor:
    """Repeat heads for queries that share them, and put the heads of all sequences into one dimension."""
    s, b, k, d = heads.shape
    wide = heads.unsqueeze(3).expand(s, b, k, times, d).reshape(s, b, k * times, d)
    return wide.reshape(s, b * k * times, d).transpose(0, 1)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Return the context of a rank's heads, one token after another: scores, softmax in fp32, and their product."""
    s, b, a, _ = query.shape
    times = a // key.shape[2]
    query, key, value = repeated(query, 1), repeated(key, times), repeated(value, times)
    scores = torch.baddbmm(query.new_empty(b * a, s, s), query, key.transpose(1, 2), beta=0.0, alpha=0.5)
    wide = scores.view(b, a, s, s).float().masked_fill_(mask, -10_000.0)
    return torch.bmm(wide.softmax(-1).to(value.dtype).view(b * a, s, s), value)


def of_tokens(heads: Tensor) -> Tensor:
    """Return a projection's output, one sequence after another, with tokens first."""
    return heads.transpose(0, 1)


@pytest.mark.cases(6, 60)
def test_saved_by_the_heads_of_a_rank(draw: Random) -> None:
    """A rank's single head of keys is a view in a batch of one sequence; so it is with as many ranks as heads."""
    t, s, d = draw.choice((1, 2, 4)), draw.randint(2, 20), 2 * draw.randint(1, 8)
    b, each = draw.choice((1, 1, 2)), draw.choice((1, 1, 2))
    k, a = t * each, t * each * draw.randint(2, 4)
    query, key = (torch.zeros(s, b, heads // t, d, dtype=torch.bfloat16, requires_grad=True) for heads in (a, k))
    value = torch.zeros(b, s, k // t, d, dtype=torch.bfloat16, requires_grad=True)
    mask = torch.ones(b, 1, s, s, dtype=torch.bool).triu(1)
    with Saved(mask) as saved:
        context = attend(query, key, of_tokens(value), mask)
    shape = {**DEFAULTS, "t": t, "k": k, "a": a, "d": d, "s": s, "b": b, "h": a * d}
    assert context.requires_grad
    assert summed_rows(EAGER, ROWS, shape) == saved.bytes(mask), shape
