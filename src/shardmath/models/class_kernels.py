"""Kernels of model classes in Transformers and in Megatron-Bridge that differ from those of Llama, by ``model_type``.

Each of Transformers was found by what its layers save (tests/oracles/hugging_face/test_huggingface_families.py), each
of Megatron-Bridge by what its provider chooses (0.3.1; Gemma 2 that of the main branch of August 2026).
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CLASS_KERNELS", "NARROW_ROUTERS", "bridge_kernels"]

_SCALE = {"norm": "eager_scale"}
#: Norms of queries and keys behind the projections of all three.
_ALL = {"qk_order": "all"}
#: PEFT finds no experts in some classes.
_UNTAKEN = {"expert_adapters": "none"}
_TOP = {"router": "huggingface_top", "router_precision": "bf16", **_UNTAKEN}
#: Transformers leaves the weights of some routers in fp32.
_WIDE = {"router_weights": "fp32"}
_GEMMA4 = {"norm": "eager_power", "rope": "shared_twice"}
_PAIRS = {"rope": "joined_repeated", "projections": "gate_up"}
_PICKED = {"projections": "fused", "value": "picked", "softmax": "low"}

#: Options by axis; a model of another family, or of the catalogue without one, has those of Llama, GPT-2 or GPT-NeoX.
CLASS_KERNELS: Mapping[str, Mapping[str, str]] = {
    "bloom": {"projections": "fused", "value": "view", "attention": "eager"},
    "apertus": _ALL,
    "cohere": {**_SCALE, **_ALL},
    "cohere2": _SCALE,
    "ernie4_5": {"rope": "repeated_fp32"},
    "ernie4_5_moe": {"rope": "repeated_fp32", "router": "huggingface_bounded", "router_precision": "bf16", **_WIDE},
    "exaone4": _ALL,
    "exaone_moe": {**_ALL, **_WIDE},
    "falcon": {**_PICKED, "attention": "sdpa_steps"},
    "falcon_grouped": {**_PICKED, "attention": "sdpa_masked"},
    "flex_olmo": {"norm": "eager_fp32", "rope": "shared_fp32", "router_precision": "bf16"},
    "gemma": _SCALE,
    "gemma2": {**_SCALE, "attention": "eager"},
    "gemma3_text": {**_SCALE, **_ALL, "rope": "shared_twice"},
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "glm": _PAIRS,
    "glm4": _PAIRS,
    "glm4_moe": {"rope": "joined", **_ALL, **_WIDE},
    "gpt_oss": {"norm": "eager_fp32", "rope": "shared_half", "attention": "eager", "router": "huggingface_chosen",
                "router_precision": "bf16", **_UNTAKEN},
    "granitemoe": _TOP,
    "granitemoeshared": {**_TOP, "projections": "gate_up"},
    "helium": {**_SCALE, "rope": "repeated"},
    "hunyuan_v1_dense": {"rope": "shared_first"},
    "hy_v3": {"shared_sum": "fp32", **_ALL, **_WIDE},
    "hy_v3_low": {**_ALL, **_WIDE},
    "hunyuan_v1_moe": {"rope": "shared_first", "expert_adapters": "weights_alone", **_WIDE},
    "mellum": {"rope": "shared_twice", "router_precision": "bf16"},
    "minicpm3": {"rope": "joined"},
    "minimax_m2": {"rope": "joined", "router": "huggingface_low"},
    "nemotron": {**_SCALE, "rope": "joined"},
    "olmo": {"rope": "shared_fp32"},
    "olmo2": {"norm": "eager_fp32", "rope": "shared_fp32"},
    "olmo3": {"norm": "eager_fp32", "rope": "shared_fp32_twice"},
    "opt": {"position_ids": "shifted"},
    "phi": {"rope": "joined_held", **_ALL},
    "phimoe": {"router": "huggingface_mixer", "router_precision": "bf16", **_UNTAKEN},
    "phi3": {"rope": "joined", "projections": "fused", "value": "view"},
    "sarvam_moe": {"rope": "joined", **_ALL, **_WIDE},
    "stablelm": {"rope": "joined_held", **_ALL},
    "starcoder2": {},
    "vaultgemma": {**_SCALE, "attention": "eager"},
}

#: Further differences where routers' weights are as wide as all others: so are Hunyuan's logits.
NARROW_ROUTERS: Mapping[str, Mapping[str, str]] = {"hunyuan_v1_moe": {"router_precision": "bf16"}}

#: Gemma's gate is ``fast_gelu``, for which Megatron-Core has no fused kernel with the product behind it.
_GATE = {"swiglu": "unfused"}

#: Options by axis in Megatron-Bridge; all others have those of Megatron-Core.
_BRIDGE_KERNELS: Mapping[str, Mapping[str, str]] = {
    "gemma": _GATE,
    "gemma2": _GATE,
    "vaultgemma": _GATE,
    "gemma3_text": {**_GATE, "rope": "fused_twice"},
}


def bridge_kernels(model_type: str, architecture: Mapping[str, str]) -> dict[str, str]:
    """Return options by axis in Megatron-Bridge where they differ from those of Megatron-Core.

    Bounded scores and logits come with FlexAttention there, whatever the family.
    """
    bounded = {"attention": "flex"} if architecture["capping"] != "none" else {}
    return {**_BRIDGE_KERNELS.get(model_type, {}), **bounded}
