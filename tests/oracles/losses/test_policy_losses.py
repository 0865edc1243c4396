"""Losses of verl's actor and critic on models of Transformers: log-probabilities, the compiled entropy, and values.

flash-attn's cross entropy runs on GPUs alone: a stand-in keeps what that one keeps (its ops/triton/cross_entropy.py:
logits, log-sum-exp and labels) and writes the gradient where that one does.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from counted import DEFAULTS
from oracles.hugging_face.huggingface import FAMILIES, causal_lm, random_shape
from oracles.instruments.allocator import AllocatorLog
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.instruments.traced import summed_rows
from oracles.losses.test_compiled_loss import BESIDE
from torch import Tensor
from transformers import AutoModelForTokenClassification

from shardmath.symbolic.implementations import HUGGINGFACE

MOMENTS = ("stage.loss.after_forward", "stage.loss.loss_backward")


class CrossEntropy(torch.autograd.Function):
    """The losses of tokens; values do not matter."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, in_place: bool) -> Tensor:
        losses, sums = (logits.new_zeros(len(logits), dtype=torch.float32) for _ in range(2))
        ctx.save_for_backward(logits, sums, labels)
        ctx.in_place = in_place
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        logits, _, _ = ctx.saved_tensors
        return logits.detach() if ctx.in_place else torch.empty_like(logits), None, None


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of every row: the log-sum-exp less the mean logit."""
    softmax = torch.nn.functional.softmax(logits, dim=-1)
    return torch.logsumexp(logits, dim=-1) - torch.sum(softmax * logits, dim=-1)


def kept_of_tokens(loss: str, tokens: int) -> int:
    """Bytes of what an entropy keeps of each token beside tensors as large as logits."""
    rows = ("entropy_statistics", "chunk_statistics", "entropy_log_sums", "chunk_log_sums")
    return summed_rows(HUGGINGFACE.with_choices(loss=loss), [f"loss.{row}" for row in rows],
                       {**DEFAULTS, "s": tokens, "b": 1})


def value_loss(values: Tensor, earlier: Tensor, returns: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of the larger squared errors, of values or of bounded ones, and the share of the latter."""
    bounded = torch.max(torch.min(values, earlier + 0.5), earlier - 0.5)
    free, within = (values - returns) ** 2, (bounded - returns) ** 2
    loss = 0.5 * ((torch.max(free, within) * counts).sum() / counts.sum())
    return loss, (torch.gt(within, free).float() * counts).sum() / counts.sum()


@pytest.mark.cases(6, 60)
def test_an_actor(draw: Random) -> None:
    """One sequence of all tokens; after the loss no more than its gradient, in place of the logits."""
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2] | {"b": 1}
    model, ids = causal_lm(family, shape, "sdpa"), torch.zeros(1, shape["s"], dtype=torch.long)
    kept, tables, after, backward, during = ledger(
        HUGGINGFACE.with_choices(loss="verl"), "stage.activation", "stage.buffer", *MOMENTS, "stage.loss.loss_forward",
        **shape)
    gradients: list[int] = []
    with Live(model, ids) as live:
        logits = model(input_ids=ids, use_cache=False).logits
        logits.register_hook(lambda gradient: gradients.append(gradient.data_ptr()))
        place = logits.data_ptr()
        live.restart()
        negatives = -CrossEntropy.apply(logits.squeeze(0), torch.roll(ids[0], -1), True)
        loss = negatives.mean()
        del logits, negatives
        assert abs(live.peak - kept - tables - during) <= loss.nbytes
        assert live.now == kept + tables + after
    loss.backward()
    assert gradients == [place]
    assert backward == loss.nbytes


@pytest.mark.cases(6, 60)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_critic(draw: Random, checkpointing: bool) -> None:
    """A classifier of tokens with one label; earlier values and returns are the batch's."""
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    config = FAMILIES[family][0](
        hidden_size=shape["h"], num_attention_heads=shape["a"], num_key_value_heads=shape["k"], head_dim=shape["d"],
        intermediate_size=shape["f"], vocab_size=shape["u"], num_hidden_layers=shape["L"], num_labels=1,
        classifier_dropout=0.0, tie_word_embeddings=bool(shape["tied"]), max_position_embeddings=64,
        attn_implementation="sdpa", pad_token_id=None, bos_token_id=None, eos_token_id=None, dtype=torch.bfloat16)
    model = AutoModelForTokenClassification.from_config(config, dtype=torch.bfloat16).train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    tokens = shape["b"], shape["s"]
    ids, counts = torch.zeros(tokens, dtype=torch.long), torch.ones(tokens, dtype=torch.bool)
    earlier, returns = torch.randn(tokens), torch.randn(tokens)
    activation, tables, after, backward, parameters = ledger(
        HUGGINGFACE.with_choices(loss="value"), "stage.activation", "stage.buffer", *MOMENTS, "stage.parameters",
        **shape, rfull=int(checkpointing))
    gradients: list[int] = []
    with Live(model, ids, earlier, returns, counts) as live:
        values = model(input_ids=ids, use_cache=False).logits.squeeze(-1)
        values.register_hook(lambda gradient: gradients.append(live.peak))
        loss, share = value_loss(values, earlier, returns, counts)
        del values
        assert live.now == activation + tables + after
        live.restart()
        loss.backward()
    assert share.numel() == 1
    assert parameters == sum(weight.numel() for weight in model.parameters())
    assert gradients == [activation + tables + backward]


@pytest.fixture
def compiled(compiler: None) -> Callable[[Tensor], Tensor]:
    """The entropy as verl compiles it."""
    return torch.compile(entropy, dynamic=True)


@pytest.mark.slow
@pytest.mark.cases(1, 6)
def test_an_actor_with_entropy(draw: Random, compiled: Callable[[Tensor], Tensor]) -> None:
    """The logits are there before the loss; gradients of log-probabilities and of the entropy live together.

    On a CPU the compiler writes fp32 exponentials in the forward pass. On an H100 (PyTorch 2.11) it writes none.
    """
    s, u = 8 * draw.randint(4, 12), 1024 * draw.randint(2, 6)
    labels = torch.zeros(s, dtype=torch.long)
    for _ in range(3):  # the first pass compiles
        logits, loss = torch.randn(s, u).bfloat16().requires_grad_(), None
        with AllocatorLog() as forward:
            with Saved() as saved:
                entropies = compiled(logits)
                statistics = saved.bytes(logits)
            loss = CrossEntropy.apply(logits, labels, False).mean() - 0.01 * entropies.mean()
            del entropies
        with AllocatorLog() as backward:
            gradient, = torch.autograd.grad(loss, logits)
    assert gradient.nbytes == logits.nbytes
    assert statistics == kept_of_tokens("verl_entropy", s)
    kept, after, during, gradients = ledger(
        HUGGINGFACE.with_choices(loss="verl_entropy"), "loss.saved", "stage.loss.after_forward",
        "stage.loss.loss_forward", "stage.loss.loss_backward", s=s, b=1, u=u, B=1, **BESIDE)
    given = logits.nbytes + labels.nbytes
    few = 16 * s  # numbers of a token that live between kernels
    assert abs(forward.net + given - kept - after) <= few
    exponentials = 2 * logits.nbytes
    assert abs(forward.peak + given - exponentials - kept - during) <= few
    assert abs(backward.peak - gradients) <= few
