"""The counted table of the families, and with it reader and ledger, against transformers' own model classes.

The classes are instantiated on the meta device, where a parameter has a shape and no memory.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from families import CONFIGS, COUNTED, read_config

#: Part of the table by name of the parameter; the first that is found in the name.
PARTS = {
    "embedding": r"(embed_tokens|wte|embed_in)\.weight$",
    "positions": r"\bwpe\.weight$",
    "lm_head": r"^lm_head\.weight$",
    "final_norm": r"^(model|transformer|gpt_neox)\.(norm|ln_f|final_layer_norm)\.",
    "norms": r"\.(input_layernorm|post_attention_layernorm|ln_1|ln_2)\.",
    "attention": r"\.(self_attn|attn|attention)\.",
    "shared_expert_gate": r"\.shared_expert_gate\.",
    "shared_experts": r"\.shared_experts?\.",
    "experts": r"\.experts\.",
    "router": r"\.(mlp\.gate|feed_forward\.router)\.",
    "dense_mlp": r"\.(mlp|feed_forward)\.",
}


def built(config: dict[str, Any]) -> Any:
    """The causal language model of a config.json, without memory."""
    keys = dict(config)
    made = transformers.AutoConfig.for_model(keys.pop("model_type"), **keys)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(made)


def part_of(name: str) -> str:
    return next(part for part, pattern in PARTS.items() if re.search(pattern, name))


@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_builds_what_the_table_says(name: str) -> None:
    model, stored = built(CONFIGS[name]), COUNTED[name]
    counted = dict.fromkeys(PARTS, 0)
    with_experts = set()
    for parameter_name, parameter in model.named_parameters():  # tied matrices once
        counted[part_of(parameter_name)] += parameter.numel()
        with_experts |= set(re.findall(r"layers\.(\d+)\..*\bexperts\.", parameter_name))
    biases = sum(each.numel() for buffer, each in model.named_buffers() if "e_score_correction_bias" in buffer)
    assert counted == {part: int(stored[part]) for part in PARTS}
    assert sum(counted.values()) == int(stored["total"])
    assert (model.config.num_hidden_layers, len(with_experts), biases) == (
        int(stored["layers"]), int(stored["layers_with_experts"]), int(stored["router_bias_buffer"]),
    )


@pytest.mark.parametrize("name", list(CONFIGS))
def test_transformers_turns_queries_by_the_angles_that_the_reader_says(name: str, tmp_path: Path) -> None:
    keys, model = dict(CONFIGS[name]), read_config(tmp_path, CONFIGS[name])
    made = transformers.AutoConfig.for_model(keys.pop("model_type"), **keys)
    own = getattr(made, "rope_parameters", None) or {}
    kind = own.get("rope_type", "default")
    assert model.rope_base == own.get("rope_theta", 0)
    assert (model.rope_scaling.kind if model.rope_scaling else "default") == kind
    if model.rope_scaling is not None:
        assert model.rope_scaling.factor == own["factor"]
    epsilons = [getattr(made, key) for key in ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps")
                if hasattr(made, key)]
    assert model.norm_epsilon == epsilons[0]
    assert model.routed_scaling_factor == getattr(made, "routed_scaling_factor", 1)
