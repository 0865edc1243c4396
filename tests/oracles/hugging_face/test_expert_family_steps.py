"""Peaks of a step of families with experts against Transformers itself: on one GPU, and on ranks that share all out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from oracles.hugging_face.family_steps import recorded
from oracles.hugging_face.test_family_steps import assert_moments_behind_the_head, assert_peak, run_of

from shardmath.account.accounting import Explanation
from shardmath.account.replaying import replayed

pytestmark = pytest.mark.slow

Keys = dict[str, Any]
#: Bytes by which a rank may differ: scalars of the loss and of the optimizer, gathered corrections of ERNIE 4.5.
SCALARS = 256


def _experts(draw: Random) -> Keys:
    """Draw keys of experts; a row of a grouped product is a multiple of 16 bytes long."""
    return {"num_experts_per_tok": draw.choice((1, 2)), "moe_intermediate_size": 8 * draw.randint(1, 12)}


def mixtral(draw: Random) -> Keys:
    """Mixtral, whose experts have the width of an MLP."""
    keys = _experts(draw)
    return {**keys, "num_local_experts": draw.choice((2, 4, 8)), "intermediate_size": keys["moe_intermediate_size"]}


def olmoe(draw: Random) -> Keys:
    """OLMoE, which normalises queries and keys over all heads."""
    keys = _experts(draw)
    return {**keys, "num_experts": draw.choice((2, 4, 8)), "intermediate_size": keys["moe_intermediate_size"],
            "norm_topk_prob": draw.random() < 0.5, "attention_bias": draw.random() < 0.5}


def qwen3_moe(draw: Random) -> Keys:
    """Qwen3 with experts, the first layers of which may be dense."""
    return {**_experts(draw), "num_experts": draw.choice((2, 4, 8)), "norm_topk_prob": draw.random() < 0.5,
            "decoder_sparse_step": 1, "attention_bias": draw.random() < 0.5}


def qwen2_moe(draw: Random) -> Keys:
    """Qwen2 with experts: shared ones with a gate."""
    return {**_experts(draw), "num_experts": draw.choice((2, 4, 8)), "norm_topk_prob": draw.random() < 0.5,
            "decoder_sparse_step": 1, "shared_expert_intermediate_size": 8 * draw.randint(1, 30)}


def hunyuan_v1_moe(draw: Random) -> Keys:
    """Hunyuan-A13B: one shared expert as wide as a routed one."""
    keys = _experts(draw)
    return {"num_experts": draw.choice((2, 4, 8)), "moe_topk": keys["num_experts_per_tok"],
            "intermediate_size": keys["moe_intermediate_size"], "attention_bias": draw.random() < 0.5}


def dots1(draw: Random) -> Keys:
    """dots.llm1: sigmoids, shared experts, the first layers dense."""
    return {**_experts(draw), "n_routed_experts": draw.choice((2, 4, 8)), "n_shared_experts": draw.randint(1, 2),
            "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "sliding_window": None}


def glm4_moe(draw: Random) -> Keys:
    """GLM 4.5: as dots.llm1, with half of each head rotary or all of it."""
    keys = {**dots1(draw), "use_qk_norm": draw.random() < 0.5, "attention_bias": draw.random() < 0.5,
            "partial_rotary_factor": draw.choice((0.5, 1.0))}
    return {name: value for name, value in keys.items() if name != "sliding_window"}


def minimax_m2(draw: Random) -> Keys:
    """MiniMax M2: sigmoids of 16-bit logits, heads that are turned in part."""
    keys = _experts(draw)
    return {**keys, "num_local_experts": draw.choice((2, 4, 8)), "intermediate_size": keys["moe_intermediate_size"],
            "rotary_dim": 16}


def granitemoe(draw: Random) -> Keys:
    """Granite 3, whose router chooses before its softmax."""
    keys = _experts(draw)
    return {**keys, "num_local_experts": draw.choice((2, 4, 8)), "intermediate_size": keys["moe_intermediate_size"],
            "attention_bias": draw.random() < 0.5}


def granitemoeshared(draw: Random) -> Keys:
    """Granite 3 with a shared expert, whose gate and up projection are one matrix."""
    return {**granitemoe(draw), "shared_intermediate_size": 8 * draw.randint(1, 30)}


def gpt_oss(draw: Random) -> Keys:
    """GPT-OSS: sinks, biases everywhere, bounded gates; windows wider than most sequences here."""
    keys = _experts(draw)
    return {**keys, "num_local_experts": draw.choice((2, 4, 8)), "intermediate_size": keys["moe_intermediate_size"],
            "sliding_window": 128, "rope_scaling": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}


def ernie4_5_moe(draw: Random) -> Keys:
    """ERNIE 4.5 with shared experts and without, and with dense layers first."""
    keys = _experts(draw)
    return {"moe_num_experts": draw.choice((2, 4, 8)), "moe_k": keys["num_experts_per_tok"], "use_bias": False,
            "moe_intermediate_size": keys["moe_intermediate_size"], "moe_num_shared_experts": draw.randint(0, 2),
            "moe_layer_interval": 1}


def deepseek_v3(draw: Random) -> Keys:
    """DeepSeek-V3: latent attention, sigmoids, groups of experts or none; values narrower than keys."""
    keys, still, turned = dots1(draw), draw.choice((8, 16, 32)), draw.choice((8, 16))
    del keys["sliding_window"]
    groups = draw.choice((1, 2)) if keys["n_routed_experts"] > 2 else 1
    return {
        **keys, "q_lora_rank": draw.choice((None, 16, 48)), "kv_lora_rank": draw.choice((16, 64)),
        "qk_nope_head_dim": still, "qk_rope_head_dim": turned, "v_head_dim": draw.choice((8, still)),
        "n_group": groups, "topk_group": 1, "num_nextn_predict_layers": 0,
    }


def glm4_moe_lite(draw: Random) -> Keys:
    """GLM-4.7-Flash: as DeepSeek-V3 without groups, with a dense first layer; values as wide as keys or narrower."""
    keys = deepseek_v3(draw)
    wide = keys["qk_nope_head_dim"] + keys["qk_rope_head_dim"]
    return {name: value for name, value in {**keys, "n_group": 1, "v_head_dim": draw.choice((wide, 8))}.items()
            if name not in ("num_nextn_predict_layers", "first_k_dense_replace")}


def solar_open(draw: Random) -> Keys:
    """Solar Open: as dots.llm1, with experts in every layer and without norms of queries and keys."""
    keys = {**dots1(draw), "attention_bias": draw.random() < 0.5}
    del keys["sliding_window"]
    return keys


def exaone_moe(draw: Random) -> Keys:
    """K-EXAONE: as dots.llm1, with windows that are longer than any sequence here."""
    keys = dots1(draw)
    return {**_experts(draw), "num_experts": keys["n_routed_experts"], "num_shared_experts": keys["n_shared_experts"],
            "sliding_window": 4096}


def hy_v3(draw: Random) -> Keys:
    """Hy3: as dots.llm1, with a sum of routed and shared experts in fp32 or in 16 bits."""
    keys = dots1(draw)
    return {**_experts(draw), "num_experts": keys["n_routed_experts"], "num_shared_experts": keys["n_shared_experts"],
            "attention_bias": draw.random() < 0.5, "enable_moe_fp32_combine": draw.random() < 0.7}


def mellum(draw: Random) -> Keys:
    """Mellum 2: Qwen3 with experts, with windows that are longer than any sequence here."""
    keys = qwen3_moe(draw)
    del keys["decoder_sparse_step"]
    return {**keys, "sliding_window": 4096}


def sarvam_moe(draw: Random) -> Keys:
    """Sarvam 30B: as GLM 4.5."""
    return glm4_moe(draw)


def sarvam_mla(draw: Random) -> Keys:
    """Sarvam 105B: as DeepSeek-V3."""
    return deepseek_v3(draw)


def deepseek_v2(draw: Random) -> Keys:
    """DeepSeek-V2, whose router has a softmax."""
    return {**deepseek_v3(draw), "n_group": 1, "topk_method": "greedy", "norm_topk_prob": False}


FAMILIES: Mapping[str, Callable[[Random], Keys]] = {family.__name__: family for family in (
    mixtral, olmoe, qwen3_moe, qwen2_moe, hunyuan_v1_moe, dots1, glm4_moe, minimax_m2, granitemoe, granitemoeshared,
    ernie4_5_moe, gpt_oss, deepseek_v3, deepseek_v2, glm4_moe_lite, solar_open,
    exaone_moe, hy_v3, mellum, sarvam_moe, sarvam_mla)}
#: Families whose heads share out the residual stream.
SHARING = ("olmoe", "granitemoe", "granitemoeshared", "ernie4_5_moe", "deepseek_v3", "deepseek_v2", "glm4_moe_lite",
           "sarvam_mla")
LATENT = ("deepseek_v3", "deepseek_v2", "glm4_moe_lite", "sarvam_mla")
#: Kernels of attention of families that have not all.
ATTENTION: Mapping[str, tuple[str, ...]] = {"gpt_oss": ("eager",)}
#: Keys that say which layers are dense, of families that may have such ones first: the layers, or their number.
DENSE_FIRST: Mapping[str, Callable[[int], Keys]] = {
    **dict.fromkeys(("qwen2_moe", "qwen3_moe"), lambda number: {"mlp_only_layers": list(range(number))}),
    **dict.fromkeys(("dots1", "glm4_moe", "deepseek_v3", "deepseek_v2", "exaone_moe", "sarvam_moe", "sarvam_mla"),
                    lambda number: {"first_k_dense_replace": number}),
    "ernie4_5_moe": lambda number: {"moe_layer_start_index": number},
}


def drawn(draw: Random, family: str) -> tuple[Keys, Keys]:
    """Draw a config.json and a run: long or short sequences; forward passes are no peak with such vocabularies.

    GPT-OSS has four heads or more: beside fewer, two masks make its forward pass the largest moment. Latent attention
    has two heads or more, and a larger vocabulary, as its heads are wider than the residual stream (docs/limits.md).
    So has Hy3, whose sums in fp32 make its forward pass larger.
    """
    k, each, d, layers = draw.choice((1, 2, 4)), draw.choice((1, 2, 4)), draw.choice((16, 32)), draw.randint(1, 4)
    each = 4 if family == "gpt_oss" else each
    is_latent, sizes = family in LATENT, (1, 2, 4, 8)
    if is_latent:
        k, sizes = max(k, 2), (16, 32)
    if family == "hy_v3":
        sizes = (4, 8)
    if family in ("glm4_moe_lite", "hy_v3"):  # whose first layer is dense
        layers = max(layers, 2)
    config = {
        "model_type": family, "hidden_size": k * each * d, "num_attention_heads": k * each, "num_key_value_heads": k,
        "intermediate_size": 32 * draw.randint(1, 30), "num_hidden_layers": layers,
        "tie_word_embeddings": draw.random() < 0.5, "max_position_embeddings": 4096,
        "vocab_size": draw.choice(sizes) * k * each * d, **FAMILIES[family](draw),
    }
    if is_latent:
        config["num_key_value_heads"] = config["num_attention_heads"]
    if family not in SHARING:
        config["head_dim"] = d
    if family in DENSE_FIRST:
        config |= DENSE_FIRST[family](draw.randrange(layers))
    run = {"sequence": draw.choice((16, 64, 256, 1024)), "batch": draw.choice((1, 2)), "full": draw.random() < 0.4,
           "microbatches": draw.choice((1, 1, 2))}
    return config, run


def assert_replay(counted: Explanation, config: Keys, run: Keys) -> None:
    """Demand a replay, and that its own peak is the ledger's."""
    assert counted.replay is not None, (counted.replay_unknown, config, run)
    assert counted.replay.allocated_bytes == counted.peak_bytes, (config, run)


@pytest.mark.cases(2, 60)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_moment_on_one_gpu(draw: Random, family: str, tmp_path: Path) -> None:
    config, run = drawn(draw, family)
    run["attention"] = draw.choice(ATTENTION.get(family, ("sdpa", "sdpa", "eager")))
    counted, record = replayed(run_of(tmp_path, config, **run)), recorded(config, **run)
    assert_moments_behind_the_head(counted, record, config, run)
    assert_peak(counted, record, config, run)
    assert_replay(counted, config, run)


@pytest.mark.cases(2, 40)
@pytest.mark.parametrize("family", FAMILIES)
def test_peak_with_all_shared_out(draw: Random, family: str, tmp_path: Path) -> None:
    """Two layers or more: of one alone the reduction of its gradients can be the largest moment, which is left out."""
    config, run = drawn(draw, family)
    config["num_hidden_layers"] += 1
    run["ranks"] = draw.choice((2, 4, 8))
    run["attention"], *_ = ATTENTION.get(family, ("sdpa",))
    counted, record = replayed(run_of(tmp_path, config, **run)), recorded(config, **run)
    assert_replay(counted, config, run)
    assert counted.peak_bytes == pytest.approx(record.peak, rel=0, abs=SCALARS), (config, run)
