"""Losses of actors on Megatron-Core with a vocabulary over tensor-parallel ranks, as verl and NeMo RL compute them.

The cross entropy is Megatron-Core's own. The entropy follows verl 0.9.1 (``utils/megatron/tensor_parallel.py``), and
log-probabilities of NeMo RL its ``distributed/model_utils.py`` (commit 0433dae). Other ranks answer nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.losses.test_compiled_loss import BESIDE
from oracles.megatron_core.megatron_cpu import one_rank
from torch import Tensor

from shardmath.symbolic.implementations import MEGATRON

pytestmark = pytest.mark.slow


class Entropy(torch.autograd.Function):
    """verl's entropy over ranks: its gradient overwrites its softmax; the compiled product writes sums alone."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        most = logits.max(dim=-1, keepdim=True).values
        dist.all_reduce(most)
        shares = (logits - most).exp_()
        sums = shares.sum(dim=-1, keepdim=True)
        dist.all_reduce(sums)
        shares.div_(sums)
        mean = torch.einsum("...v,...v->...", shares, logits).unsqueeze(-1)
        dist.all_reduce(mean)
        ctx.save_for_backward(logits, shares, mean)
        return (most + sums.log() - mean).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        logits, shares, mean = ctx.saved_tensors
        logits.sub_(mean)
        shares.mul_(logits).mul_(gradient.unsqueeze(-1))
        logits.add_(mean)
        return shares.mul_(-1)


class LogProbabilities(torch.autograd.Function):
    """NeMo RL's log-probabilities over ranks, from fp32 logits: a softmax is kept beside them."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        others = target >= logits.shape[-1]
        own = target.clone()
        own[others] = 0
        most = logits.amax(dim=-1, keepdim=True)
        dist.all_reduce(most)
        shifted = logits - most
        sums = shifted.exp().sum(-1, keepdim=True)
        dist.all_reduce(sums)
        logarithms = shifted - sums.log()
        del shifted
        softmax = logarithms.exp()
        chosen = logarithms.gather(-1, own.unsqueeze(-1)).squeeze(-1)
        chosen[others] = 0.0
        dist.all_reduce(chosen)
        ctx.save_for_backward(softmax, others, own)
        return chosen

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        softmax, others, own = ctx.saved_tensors
        result = softmax.neg().mul_(gradient.unsqueeze(-1))
        places = own.flatten() + torch.arange(own.numel()) * softmax.shape[-1]
        result.view(-1).scatter_add_(0, places.masked_select(~others.flatten()), gradient.masked_select(~others))
        return result, None


def verl(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of log-probabilities alone."""
    logits = logits.float()
    logits.div_(torch.ones(*labels.shape, 1))
    return -vocab_parallel_cross_entropy(logits, labels).mean()


def verl_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss with the entropy, which reads the logits; log-probabilities have a copy of them."""
    logits = logits.float()
    logits.div_(torch.ones(*labels.shape, 1))
    copy = logits.clone()
    entropies = Entropy.apply(logits)
    return -vocab_parallel_cross_entropy(copy, labels).mean() - 0.01 * entropies.mean()


def nemo_rl(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of log-probabilities alone."""
    logits = logits.float()
    return -LogProbabilities.apply(logits, labels).mean()


@pytest.mark.cases(4, 40)
@pytest.mark.parametrize(("loss", "program"), [
    ("verl_megatron", verl), ("verl_megatron_entropy", verl_entropy), ("nemo_rl", nemo_rl)])
def test_vocab_parallel(draw: Random, loss: str, program: Callable[[Tensor, Tensor], Tensor]) -> None:
    """One sequence of packed tokens; a few numbers of each token live between kernels."""
    s, t = 8 * draw.randint(2, 12), draw.choice([1, 2, 4])
    u = 128 * draw.randint(4, 12) * t
    labels, peaks = torch.zeros(1, s, dtype=torch.long), []
    leaf = torch.zeros(1, 1, 1, dtype=torch.bfloat16, requires_grad=True)
    with one_rank({"t": t}, draw), Live(leaf, labels) as live:
        logits = [leaf.repeat(1, s, u // t)]  # which keeps nothing: the head's product is not counted here
        logits[0].register_hook(lambda gradient: peaks.append((live.peak, gradient.nbytes)))
        value = program(logits.pop(), labels)  # which alone holds them
        kept, most = live.now, live.peak
        live.restart()
        value.backward()
    moments = (f"stage.loss.{moment}" for moment in ("after_forward", "loss_forward", "loss_backward"))
    saved, after, during, gradients, head = ledger(
        MEGATRON.with_choices(loss=loss), "loss.saved", *moments, "stage.loss.head_backward", s=s, b=1, u=u, t=t,
        sp=int(t > 1), B=1, **BESIDE)
    few = 40 * s
    assert kept == saved + after
    assert abs(most - saved - during) <= few
    assert abs(peaks[0][0] - saved - gradients) <= few
    assert peaks[0][1] == head
