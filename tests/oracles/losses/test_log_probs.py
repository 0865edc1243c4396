"""Losses of preference training on logits of all tokens: LLaMA-Factory's, that of TRL 1.9, and ms-swift's."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import torch
from counted import values
from oracles.hugging_face.huggingface import causal_lm, random_shape, token_ids, with_large_vocabulary
from oracles.instruments.allocator import AllocatorLog
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.instruments.traced import summed
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid
from transformers import PreTrainedModel

from shardmath.symbolic.accounts import kept_rows
from shardmath.symbolic.implementations import HUGGINGFACE

#: A model and its tokens: sums of log-probabilities, and what the trainer goes on to hold.
Scores = Callable[[PreTrainedModel, Tensor, bool], tuple[Tensor, tuple[Tensor, ...]]]


def gathered(model: PreTrainedModel, ids: Tensor, wide: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Sum up log-probabilities of labels that count, a token ahead, from fp32 logits: LLaMA-Factory's."""
    logits = model(input_ids=ids).logits.to(torch.float32)
    labels = ids[:, 1:].clone()
    counts = labels != -100
    labels = labels.masked_fill(~counts, 0)
    each = torch.gather(logits[:, :-1, :].log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
    return (each * counts).sum(-1), (logits,)


def selected(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute log-probabilities as TRL does for logits of this kind: of 16 bits a sequence at a time."""
    places = labels.unsqueeze(-1)
    if logits.dtype == torch.float32:
        of_labels = torch.gather(logits, -1, places)
        sums = torch.stack([torch.logsumexp(sequence, dim=-1) for sequence in logits])
        return (of_labels - sums.unsqueeze(-1)).squeeze(-1)
    rows = []
    for sequence, place in zip(logits, places, strict=True):
        row = log_softmax(sequence, dim=-1)
        rows.append(row.gather(-1, place))
    return torch.stack(rows).squeeze(-1)


def of_model(model: PreTrainedModel, ids: Tensor, wide: bool) -> Tensor:
    """Return the logits as Accelerate returns them: in fp32 with mixed precision."""
    logits: Tensor = model(input_ids=ids).logits
    return logits.to(torch.float32) if wide else logits


def scored(model: PreTrainedModel, ids: Tensor, wide: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Sum up log-probabilities of tokens that have a next one: those of TRL 1.9, whose trainer holds the logits."""
    logits = of_model(model, ids, wide)
    each = selected(logits[:, :-1], ids[:, 1:])
    each[ids[:, 1:] < 0] = 0.0
    return each.sum(-1), (logits,)


def rolled(model: PreTrainedModel, ids: Tensor, wide: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Sum up log-probabilities of rolled labels: those of ms-swift."""
    logits = of_model(model, ids, wide)
    labels = torch.roll(ids, shifts=-1, dims=1)
    counts = labels != -100
    labels = labels.clone()
    labels[~counts] = 0
    each = selected(logits, labels)
    each[~counts] = 0
    return each.sum(-1), (labels, counts)


def entropies(logits: Tensor) -> None:
    """Compute what TRL 1.9 logs of scored logits: 128 tokens at a time, of a copy."""
    for rows in logits[:, :-1].detach().reshape(-1, logits.shape[-1]).split(128):
        logged = log_softmax(rows, dim=-1)
        (torch.exp(logged) * logged).sum(-1)


def loss_of(score: Scores, model: PreTrainedModel, reference: PreTrainedModel | None, ids: Tensor,
            wide: bool) -> Tensor:
    """Compare the better half of the sequences with the worse one, against a reference if there is one."""
    sums, held = score(model, ids, wide)
    better, worse = sums.chunk(2)
    margin = better - worse
    if reference is not None:
        with torch.no_grad():
            others, beside = score(reference, ids, wide)
            if score is not scored:
                del beside
        better, worse = others.chunk(2)
        margin = margin - (better - worse)
    if score is scored:
        entropies(held[0])
    return -logsigmoid(0.1 * margin).mean()


class _HeadError(Exception):
    """The gradient of the logits is there."""


def stop_at_the_head(*_: object) -> None:
    raise _HeadError


def until_the_head(loss: Tensor) -> None:
    """Run the backward pass of the loss alone."""
    with pytest.raises(_HeadError):
        loss.backward()


_LOSSES: dict[str, tuple[Scores, bool]] = {
    "log_probs": (gathered, True), "trl_dpo": (scored, True), "trl_dpo_16": (scored, False),
    "swift_dpo": (rolled, True), "swift_dpo_16": (rolled, False),
}


@pytest.mark.cases(4, 40)
@pytest.mark.parametrize("reference", ["none", "copy"])
@pytest.mark.parametrize("loss", list(_LOSSES))
def test_pairs(draw: Random, loss: str, reference: str) -> None:
    """Logits that the loss does not keep are gone before the backward pass, those of a reference as well.

    A gradient of gathered fp32 numbers is written in place, but not where each operation is seen: PyTorch's allocator
    counts it. Of 16-bit numbers a CPU makes fp32 copies, which GPUs do not, so operations are counted there.
    """
    score, wide = _LOSSES[loss]
    shape = with_large_vocabulary(draw, random_shape(draw))
    shape["s"], shape["b"] = max(shape["s"], draw.randint(16, 40)), 2 * draw.randint(1, 3)
    ids, names = token_ids(shape), ("after_forward", "loss_forward", "loss_backward")
    model = causal_lm("llama", shape, "sdpa")
    model.lm_head.register_full_backward_pre_hook(stop_at_the_head)
    other = causal_lm("llama", shape, "sdpa") if reference == "copy" else None
    with Live(model, *([] if other is None else [other]), ids) as live:
        margin = loss_of(score, model, other, ids, wide)
        after, forward = live.now, live.peak
        live.restart()
        until_the_head(margin)
        backward = live.peak
    if loss in ("trl_dpo", "swift_dpo"):
        with AllocatorLog():
            margin = loss_of(score, model, other, ids, wide)
        with AllocatorLog() as allocated:
            until_the_head(margin)
        backward = after + allocated.peak
    terms = [f"stage.loss.{moment}" for moment in names]
    rest, tables, *moments = ledger(HUGGINGFACE.with_choices(loss=loss, reference=reference), "stage.activation",
                                    "stage.buffer", *terms, **shape)
    numbers = 64 * shape["b"] + 64 * shape["s"] * shape["b"]  # sums of sequences, and numbers of single tokens
    for counted, moment in zip((after, forward, backward), moments, strict=True):
        assert abs(counted - rest - tables - moment) <= numbers


@pytest.mark.cases(1, 20)
@pytest.mark.parametrize("loss", list(_LOSSES))
def test_frozen_weights_as_a_reference(draw: Random, loss: str) -> None:
    """The model without its adapters makes logits while those of the policy are kept, as a copy does."""
    score, wide = _LOSSES[loss]
    shape = with_large_vocabulary(draw, random_shape(draw)) | {"b": 2 * draw.randint(2, 3)}
    shape["s"] = max(shape["s"], draw.randint(16, 40))
    ids, model = token_ids(shape), causal_lm("llama", shape, "sdpa")
    peaks = []
    for reference in (None, model):
        with Live(model, ids) as live:
            loss_of(score, model, reference, ids, wide)
            peaks.append(live.peak)
    adapted = HUGGINGFACE.with_choices(loss=loss, adapters="q_v")
    rows = [row for row in kept_rows(adapted)
            if row.component.name == "loss" and row.tensor.name.endswith("_of_frozen")]
    more = summed(adapted, rows, values({}, "", **shape, v=shape["u"]))
    assert abs(peaks[1] - peaks[0] - more) <= 64 * shape["b"] * (shape["s"] + 1)


@pytest.mark.cases(1, 20)
@pytest.mark.parametrize("loss", ["log_probs", "trl_dpo", "trl_dpo_16"])
def test_saved_by_pairs(draw: Random, loss: str) -> None:
    """Model and loss save this, but for numbers of sequences; ms-swift's masks are also held by its trainer."""
    score, wide = _LOSSES[loss]
    shape = random_shape(draw) | {"s": draw.randint(16, 40), "b": 2 * draw.randint(1, 3)}
    ids, model = token_ids(shape), causal_lm("llama", shape, "sdpa")
    with Saved() as saved:
        margin = loss_of(score, model, None, ids, wide)
        kept = saved.bytes(model, ids)
    activation, = ledger(HUGGINGFACE.with_choices(loss=loss), "stage.activation", **shape)
    assert margin.requires_grad
    assert abs(kept - activation) <= 8 * shape["b"]
