"""FLOPs of whole Hugging Face models, forward and backward, as PyTorch counts them, against the ledger.

Of attention PyTorch counts all products, masked or not: eager attention computes them. FlashAttention skips what a
causal mask hides, so the ledger has half of them where PyTorch has all.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from oracles.hugging_face import huggingface_experts as families
from oracles.hugging_face.huggingface import FAMILIES, causal_lm, random_shape, token_ids
from oracles.instruments.times import timed, work
from torch.utils.flop_counter import FlopCounterMode

from shardmath.symbolic.implementations import HUGGINGFACE, Implementation

EAGER = HUGGINGFACE.with_choices(attention="eager")
EXPERTS = EAGER.with_choices(layers="experts")
#: Makers of models, and what the ledger calls them.
OTHERS: dict[str, tuple[Callable[..., Any], Implementation]] = {
    "mixtral": (families.mixtral, EXPERTS),
    "qwen": (families.qwen, EXPERTS),
    "deepseek": (families.deepseek, EXPERTS.with_choices(heads="latent")),
    "gpt": (families.gpt, EAGER.with_choices(normalisation="layer", mlp="gelu", biases="linear")),
}


def attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Two products, of all queries and keys."""
    (batch, heads, tokens, width), of_values = query, value[-1]
    return 2 * batch * heads * tokens * key[-2] * (width + of_values)


def attention_backward_flops(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> int:
    """Five products: scores again, and gradients of scores, queries, keys and values."""
    (batch, heads, tokens, width), of_values = query, value[-1]
    return 2 * batch * heads * tokens * key[-2] * (3 * width + 2 * of_values)


aten = torch.ops.aten
#: FlashAttention of a CPU, which PyTorch counts on a GPU only.
FLASH: dict[Any, Any] = {
    aten._scaled_dot_product_flash_attention_for_cpu: attention_flops,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward_flops,
}


def counted(model: Any, shape: dict[str, int]) -> tuple[int, int]:
    """FLOPs of the forward and of the backward pass of a model with its loss."""
    with FlopCounterMode(display=False, custom_mapping=FLASH) as forward:
        loss = model(input_ids=token_ids(shape), labels=token_ids(shape)).loss
    with FlopCounterMode(display=False, custom_mapping=FLASH) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.cases(8, 100)
def test_dense_models(draw: Random) -> None:
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    forward, = work(EAGER, "stage.forward_flops", **shape)
    assert counted(causal_lm(family, shape, "eager"), shape) == (forward, 2 * forward)


@pytest.mark.cases(4, 50)
@pytest.mark.parametrize("family", list(OTHERS))
def test_other_models(draw: Random, family: str) -> None:
    make, implementation = OTHERS[family]
    model, shape = make(draw, families.random_shape(draw))
    forward, = work(implementation, "stage.forward_flops", **shape)
    assert counted(model.to(torch.bfloat16).train(), shape) == (forward, 2 * forward)


@pytest.mark.cases(4, 40)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_flash_attention_and_recompute(draw: Random, checkpointing: bool) -> None:
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2] | {"rfull": int(checkpointing)}
    model = causal_lm(family, shape, "sdpa")
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    forward, again, model_flops, hardware = work(
        HUGGINGFACE, "stage.forward_flops", "stage.repeated_flops", "step.model_flops", "step.hardware_flops", **shape
    )
    s, b, a, d, L = (shape[letter] for letter in "sbadL")
    masked = L * 2 * b * s * s * a * d  # half of two products
    # Its backward pass makes the scores once more, which counts as no FLOP of the model.
    scores = L * 2 * b * s * s * a * d
    # PyTorch ends the recompute of a layer with the last tensor that it saved, the input of the down projection; the
    # ledger repeats the layer as a whole, as Megatron-Core and torchtitan do.
    not_run = shape["rfull"] * L * 2 * b * s * shape["f"] * shape["h"]
    found = counted(model, shape)
    assert found == (forward + masked, 2 * forward + again - not_run + (2 + shape["rfull"]) * masked + scores)
    assert sum(found) == hardware - not_run + (3 + shape["rfull"]) * masked + scores
    assert hardware - model_flops == again


@pytest.mark.cases(4, 40)
def test_time_of_core_attention_has_all_its_products(draw: Random) -> None:
    """The half of PyTorch's count, forward and backward, at the peak rate and efficiency 1."""
    shape = random_shape(draw) | FAMILIES["llama"][2] | {"ea": 1000, "Fa": 1, "Wm": 1, "ew": 1000}
    found = timed(HUGGINGFACE, **shape)
    s, b, a, d = (shape[letter] for letter in "sbad")
    sizes = (b, a, s, d)
    assert found["attention.core_time"] == attention_flops(sizes, sizes, sizes) / 2
    backward = found["attention.backward_time"] - 2 * found["attention.product_time"]
    assert backward - found["attention.backward_bytes"] == attention_backward_flops(None, sizes, sizes, sizes) / 2
