"""Small random models of later families with experts: the bytes alive after a forward pass of Transformers.

As in ``test_huggingface_families.py``, nothing between the drawn config.json and the ledger's account is told to it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from families import read_config
from oracles.hugging_face.huggingface import size, token_ids
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from shardmath.configuration.choosing import choices_of
from shardmath.input.parameters import model_values
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parameters import BY_NAME

Keys = dict[str, Any]
#: Tokens, fewer than every window.
LONGEST = 40


def experts(draw: Random) -> Keys:
    """Draw keys that the families call the same; a row of a grouped product is a multiple of 16 bytes long."""
    k, held = size(draw, 3), size(draw, 9)
    a, d = k * size(draw, 3), 8 * draw.randint(1, 3)
    return {
        "hidden_size": a * d, "num_attention_heads": a, "num_key_value_heads": k, "head_dim": d,
        "num_hidden_layers": size(draw, 4), "vocab_size": size(draw, 200), "intermediate_size": 8 * size(draw, 12),
        "max_position_embeddings": 64, "tie_word_embeddings": draw.random() < 0.5, "num_local_experts": held,
        "num_experts_per_tok": size(draw, min(held, 4)),
    }


def olmoe(draw: Random) -> Keys:
    """OLMoE, whose heads share out the residual stream."""
    keys = experts(draw)
    del keys["head_dim"]
    return {**keys, "num_experts": keys.pop("num_local_experts"), "norm_topk_prob": draw.random() < 0.5,
            "attention_bias": draw.random() < 0.5}


def minimax_m2(draw: Random) -> Keys:
    """MiniMax M2, with heads that share out the residual stream or not."""
    keys = experts(draw)
    return {**keys, "hidden_size": 8 * size(draw, 9), "rotary_dim": draw.choice((keys["head_dim"] // 2,
                                                                                keys["head_dim"]))}


def gpt_oss(draw: Random) -> Keys:
    """GPT-OSS, with windows that are wider than any sequence here."""
    return {**experts(draw), "hidden_size": 8 * size(draw, 9), "sliding_window": 64, "rope_scaling": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}


def glm4_moe(draw: Random) -> Keys:
    """GLM 4.5: sigmoids, half of each head rotary or all of it, biases of queries, keys and values."""
    keys = experts(draw)
    held = max(2, keys.pop("num_local_experts"))
    return {
        **keys, "n_routed_experts": held, "moe_intermediate_size": 8 * size(draw, 9),
        "hidden_size": 8 * size(draw, 9), "n_shared_experts": draw.randint(1, 2), "n_group": 1, "topk_group": 1,
        "norm_topk_prob": True, "num_nextn_predict_layers": 0, "partial_rotary_factor": draw.choice((0.5, 1.0)),
        "first_k_dense_replace": draw.randrange(keys["num_hidden_layers"]), "attention_bias": draw.random() < 0.5,
        "use_qk_norm": draw.random() < 0.5,
    }


def dots1(draw: Random) -> Keys:
    """dots.llm1: as GLM 4.5 with whole heads turned, without biases, and with norms of queries and keys always."""
    keys = {**glm4_moe(draw), "attention_bias": False, "sliding_window": None}
    return {name: value for name, value in keys.items() if name not in ("use_qk_norm", "partial_rotary_factor")}


def solar_open(draw: Random) -> Keys:
    """Solar Open: as dots.llm1 without norms of queries and keys, and with experts in every layer."""
    keys = {**dots1(draw), "attention_bias": draw.random() < 0.5}
    return {name: value for name, value in keys.items()
            if name not in ("first_k_dense_replace", "sliding_window", "num_nextn_predict_layers")}


def glm4_moe_lite(draw: Random) -> Keys:
    """GLM-4.7-Flash: latent attention, whose queries are compressed or not; dense layers first."""
    keys = solar_open(draw)
    dense = draw.randrange(keys["num_hidden_layers"])
    kinds = ["dense"] * dense + ["sparse"] * (keys["num_hidden_layers"] - dense)
    del keys["head_dim"]
    return {
        **keys, "attention_bias": False, "num_key_value_heads": keys["num_attention_heads"],
        "mlp_layer_types": None if dense == 1 and draw.random() < 0.5 else kinds,
        "q_lora_rank": draw.choice((None, size(draw, 40))), "kv_lora_rank": size(draw, 40),
        "qk_nope_head_dim": 8 * size(draw, 3), "qk_rope_head_dim": 2 * size(draw, 8), "v_head_dim": 8 * size(draw, 4),
    }


def sarvam_moe(draw: Random) -> Keys:
    """Sarvam 30B: as GLM 4.5."""
    return glm4_moe(draw)


def sarvam_mla(draw: Random) -> Keys:
    """Sarvam 105B: as GLM-4.7-Flash with a number of dense layers."""
    keys = glm4_moe_lite(draw)
    del keys["mlp_layer_types"]
    return {**keys, "first_k_dense_replace": draw.randrange(keys["num_hidden_layers"])}


def kinds_of_layers(draw: Random, layers: int) -> list[str]:
    """Draw dense layers before those with experts."""
    dense = draw.randrange(layers)
    return ["dense"] * dense + ["sparse"] * (layers - dense)


def exaone_moe(draw: Random) -> Keys:
    """K-EXAONE, with windows that are wider than any sequence here."""
    keys = {**dots1(draw), "sliding_window": 64}
    kinds = kinds_of_layers(draw, keys["num_hidden_layers"])
    return {**{name: value for name, value in keys.items() if name not in (
        "n_routed_experts", "n_shared_experts", "num_nextn_predict_layers", "attention_bias")},
        "num_experts": keys["n_routed_experts"], "num_shared_experts": keys["n_shared_experts"],
        **draw.choice(({}, {"mlp_layer_types": kinds}))}


def hy_v3(draw: Random) -> Keys:
    """Hy3, with and without biases of attention."""
    keys = exaone_moe(draw)
    for name in ("sliding_window", "n_group", "topk_group", "norm_topk_prob", "first_k_dense_replace"):
        del keys[name]
    return {**keys, "mlp_layer_types": kinds_of_layers(draw, keys["num_hidden_layers"]),
            "attention_bias": draw.random() < 0.5, "enable_moe_fp32_combine": draw.random() < 0.5}


def flex_olmo(draw: Random) -> Keys:
    """FlexOlmo: as OLMoE."""
    return olmoe(draw)


def mellum(draw: Random) -> Keys:
    """Mellum 2, in which every n-th layer or each has no window, the others one wider than any sequence here."""
    keys = experts(draw)
    layers, step = keys["num_hidden_layers"], size(draw, 4)
    return {
        **keys, "num_experts": keys.pop("num_local_experts"), "moe_intermediate_size": 8 * size(draw, 9),
        "hidden_size": 8 * size(draw, 9), "norm_topk_prob": draw.random() < 0.5, "sliding_window": 64,
        "layer_types": ["full_attention" if layer % step == 0 else "sliding_attention"
                        for layer in range(1, layers + 1)],
        "mlp_layer_types": kinds_of_layers(draw, layers), "attention_bias": draw.random() < 0.5,
    }


def hunyuan_v1_moe(draw: Random) -> Keys:
    """Hunyuan-A13B: one shared expert as wide as a routed one, queries and keys normalised after they were turned."""
    keys = experts(draw)
    return {**keys, "hidden_size": 8 * size(draw, 9), "num_experts": keys.pop("num_local_experts"),
            "moe_topk": keys.pop("num_experts_per_tok")}


def phimoe(draw: Random) -> Keys:
    """Phi-3.5-MoE, whose heads share out the residual stream."""
    keys = experts(draw)
    del keys["head_dim"]
    return {**keys, "num_local_experts": max(2, keys["num_local_experts"]), "num_experts_per_tok": 2,
            "attention_bias": draw.random() < 0.5, "lm_head_bias": draw.random() < 0.5}


def granitemoe(draw: Random) -> Keys:
    """Granite 3, whose heads share out the residual stream."""
    keys = experts(draw)
    del keys["head_dim"]
    return {**keys, "attention_bias": draw.random() < 0.5}


def granitemoeshared(draw: Random) -> Keys:
    """Granite 3 with and without a shared expert, whose gate and up projection are one matrix."""
    return {**granitemoe(draw), "shared_intermediate_size": draw.choice((0, size(draw, 30)))}


def ernie4_5_moe(draw: Random) -> Keys:
    """ERNIE 4.5 with shared experts and without, and with dense layers first."""
    keys = experts(draw)
    del keys["head_dim"]
    return {
        **keys, "moe_num_experts": keys.pop("num_local_experts"), "moe_k": keys.pop("num_experts_per_tok"),
        "moe_intermediate_size": 8 * size(draw, 9), "moe_num_shared_experts": draw.randint(0, 2), "use_bias": False,
        "moe_layer_start_index": draw.randrange(keys["num_hidden_layers"]), "moe_layer_interval": 1,
    }


FAMILIES: tuple[tuple[Callable[[Random], Keys], str], ...] = (
    *((family, attention) for family in (
        glm4_moe, dots1, hunyuan_v1_moe, phimoe, olmoe, minimax_m2, granitemoe, granitemoeshared, ernie4_5_moe,
        solar_open, glm4_moe_lite, sarvam_moe, sarvam_mla, exaone_moe, hy_v3, flex_olmo, mellum)
      for attention in ("sdpa", "eager")),
    (gpt_oss, "eager"),
)


@pytest.mark.cases(4, 100)
@pytest.mark.parametrize(("family", "attention"), FAMILIES, ids=lambda each: getattr(each, "__name__", each))
def test_from_the_file_to_the_bytes(
    draw: Random, family: Callable[[Random], Keys], attention: str, tmp_path: Path,
) -> None:
    config = family(draw)
    if "v_head_dim" in config and attention == "sdpa":  # a CPU has no such kernel for narrower values
        config["v_head_dim"] = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    read = read_config(tmp_path, {"model_type": family.__name__, **config})
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family.__name__, **config, use_cache=False, pad_token_id=None, bos_token_id=None,
                             eos_token_id=None),
        attn_implementation=attention, dtype=torch.bfloat16,
    ).train()
    model.config._experts_implementation = "grouped_mm"
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.float()
    shape = {BY_NAME[name].letter: value for name, value in model_values(read).items()}
    shape |= {"s": size(draw, LONGEST), "b": size(draw, 3)}
    checkpointing = draw.random() < 0.4 and not (read.attention_window and attention == "eager")
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    implementation = HUGGINGFACE.with_choices(**{**choices_of("huggingface", read), "attention": attention})
    parameters, of_experts, corrections, *kept = ledger(
        implementation, "stage.parameters", "stage.expert_parameters", "stage.router.buffer",
        "stage.activation", "stage.buffer",
        "stage.after_forward", **shape, rfull=int(checkpointing),
    )
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    assert trained == parameters + of_experts
    ids, labels = token_ids(shape), token_ids(shape)
    with Live(model, ids, labels) as live, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = model(input_ids=ids, labels=labels)
    assert output.logits is not None
    assert live.now == sum(kept) - corrections  # which are the model's own
