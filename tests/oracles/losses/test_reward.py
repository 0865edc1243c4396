"""Reward models of Transformers: one score of every token, and the loss of TRL's RewardTrainer on pairs of them."""

from __future__ import annotations

from random import Random

import pytest
import torch
from oracles.hugging_face.huggingface import FAMILIES, random_shape, token_ids
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from shardmath.symbolic.implementations import HUGGINGFACE


def reward_model(draw: Random, family: str, shape: dict[str, int], labels: int = 1) -> PreTrainedModel:
    """Make a model with bf16 weights and as many outputs; one of many sequences needs a word for padding."""
    config = FAMILIES[family][0](
        hidden_size=shape["h"], num_attention_heads=shape["a"], num_key_value_heads=shape["k"],
        head_dim=shape["d"], intermediate_size=shape["f"], vocab_size=shape["u"], num_hidden_layers=shape["L"],
        tie_word_embeddings=bool(shape["tied"]), max_position_embeddings=64, pad_token_id=draw.randrange(shape["u"]),
        bos_token_id=None, eos_token_id=None, attn_implementation="sdpa", num_labels=labels, dtype=torch.bfloat16,
    )
    model: PreTrainedModel = AutoModelForSequenceClassification.from_config(config, dtype=torch.bfloat16).train()
    return model


def compared(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Return the loss of pairs, as the trainer computes it; the first half of the sequences are the better ones."""
    better, worse = torch.chunk(model(input_ids=ids, use_cache=False).logits.squeeze(-1), chunks=2)
    return -torch.nn.functional.logsigmoid(better - worse).mean()


@pytest.mark.cases(6, 60)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_rewards(draw: Random, checkpointing: bool) -> None:
    """On a CPU log-sigmoid keeps a buffer of its input's size; on GPUs the buffer is empty."""
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    shape["b"] = 2 * draw.randint(1, 3)
    model, ids, buffer = reward_model(draw, family, shape), token_ids(shape), shape["b"]
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    gradients: list[int] = []
    model.score.register_full_backward_pre_hook(lambda _, grads: gradients.append(grads[0].nbytes))
    activation, tables, after, backward, parameters = ledger(
        HUGGINGFACE.with_choices(loss="reward"), "stage.activation", "stage.buffer", "stage.loss.after_forward",
        "stage.loss.loss_backward", "stage.parameters", **shape, rfull=int(checkpointing))
    returned = 2 * shape["b"]
    with Live(model, ids) as live:
        loss = compared(model, ids)
        assert live.now == activation + tables + after - returned + buffer
    loss.backward()
    assert gradients == [backward - loss.nbytes]
    assert parameters == sum(weight.numel() for weight in model.parameters())
    if not checkpointing:
        with Saved(model, ids) as saved:
            loss = compared(model, ids)
        assert saved.now == activation + tables + buffer


@pytest.mark.cases(4, 40)
@pytest.mark.parametrize("labels", [1, 2, 7])
def test_classifiers(draw: Random, labels: int) -> None:
    """With one label the loss is a mean square. Of more labels all scores and weights but the first are beside it."""
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    model, ids = reward_model(draw, family, shape, labels), token_ids(shape)
    named = torch.zeros(shape["b"], dtype=torch.bfloat16 if labels == 1 else torch.long)
    gradients: list[int] = []
    model.score.register_full_backward_pre_hook(lambda _, grads: gradients.append(grads[0].nbytes))
    activation, tables, after, backward, parameters = ledger(
        HUGGINGFACE.with_choices(loss="scores"), "stage.activation", "stage.buffer", "stage.loss.after_forward",
        "stage.loss.loss_backward", "stage.parameters", **shape)
    with Saved() as saved:
        outputs = model(input_ids=ids, labels=named, use_cache=False)
        kept = saved.bytes(model, ids, named)
    beside = 2 * shape["b"] * labels
    assert 0 <= kept - activation <= (labels > 1) * (beside + 2)
    with Live(model, ids, named) as live:
        outputs = model(input_ids=ids, labels=named, use_cache=False)
        assert 0 <= live.now - activation - tables - after <= 2 * beside + 2
    outputs.loss.backward()
    assert gradients == [labels * (backward - outputs.loss.nbytes)]
    assert parameters + (labels - 1) * shape["h"] == sum(weight.numel() for weight in model.parameters())
