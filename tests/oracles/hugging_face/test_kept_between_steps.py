"""Kept between steps beside weights and states: counters of PyTorch's AdamW, and buffers of the model.

Models are Transformers' own, on tensors with a size and no memory, after one step with the fused kernel.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from counted import values
from families import read_config
from oracles.hugging_face import test_expert_family_steps, test_family_steps
from oracles.instruments.traced import evaluated
from torch._subclasses import FakeTensorMode
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from shardmath.configuration.choosing import choices_of
from shardmath.input.parameters import model_values
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parameters import BY_NAME

pytestmark = pytest.mark.slow

#: Families with what others do not have, and the keys that say so: one of each kind of counter and table.
MADE: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True}, "qwen3": {}, "glm4": {"attention_bias": True},
    "gpt_neox": {"attention_bias": True}, "phi": {}, "phi3": {}, "apertus": {}, "gemma": {}, "opt": {},
    "gemma3_text": {"num_hidden_layers": 6}, "stablelm": {"qk_layernorm": True}, "minicpm3": {"q_lora_rank": 16},
    "youtu": {"q_lora_rank": 16}, "gpt_oss": {}, "qwen2_moe": {}, "granitemoeshared": {},
    "deepseek_v3": {"q_lora_rank": 16},
}


def counted(config: dict[str, Any]) -> int:
    """Bytes of the counters of AdamW and of the buffers of a model after a step."""
    keys = {key: value for key, value in config.items() if key != "model_type"}
    made = CONFIG_MAPPING[config["model_type"]](**keys, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    with FakeTensorMode():
        model: Any = AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16)
        for one in model.parameters():
            one.grad = torch.zeros_like(one)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        optimizer.step()
        counters = sum(state["step"].nbytes for state in optimizer.state.values())
        return int(counters + sum(buffer.nbytes for buffer in model.buffers()))


@pytest.mark.parametrize("family", MADE)
def test_counters_and_buffers(family: str, tmp_path: Path) -> None:
    where = test_family_steps if family in test_family_steps.WALKED else test_expert_family_steps
    config = {**where.drawn(Random(family), family)[0], **MADE[family]}
    model = read_config(tmp_path, config)
    letters = {BY_NAME[name].letter: value for name, value in model_values(model).items()}
    implementation = HUGGINGFACE.with_choices(**{**choices_of("huggingface", model), "peak": "torch"})
    known = {**values({}, "", **letters), **letters, "wt": 0}
    assert evaluated(implementation, ["stage.buffer"], known)["stage.buffer"] == counted(config)
