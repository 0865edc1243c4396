"""Keys of ``config.json`` of each family of models with experts, and the dimensions behind them.

Classes as in ``shardmath.models.dense_families``, which see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from shardmath.errors import InputError
from shardmath.models.dense_families import Epsilon, Family, GatedFamily, NoBias, keys, only
from shardmath.models.model import Count, Factor, Size
from shardmath.models.rotary import rotary_of

__all__ = ["EXPERTS", "Qwen3Moe", "first_layer_and_step", "first_sparse"]

_L2_NORM = "the normalisation of queries and keys, which has no weights, is not counted yet"
_UNTURNED = "every fourth layer has no rotary embedding"


class Mixtral(GatedFamily):
    """Mixtral: experts in every layer."""

    has_experts = True

    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 1_000_000
    num_experts: Size = Field(validation_alias=keys("num_local_experts", "num_experts"))
    moe_topk: Size = Field(validation_alias=keys("num_experts_per_tok"))

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "moe_ffn_hidden_size": self.ffn_hidden_size}


class _QwenMoe(GatedFamily):
    has_experts = True
    derived_from: ClassVar[Mapping[str, str]] = {
        **GatedFamily.derived_from, "first_dense_layers": "mlp_only_layers",
    }

    num_experts: Size = Field(validation_alias=keys("num_experts", "num_local_experts"))
    moe_topk: Size = Field(validation_alias=keys("num_experts_per_tok"))
    moe_ffn_hidden_size: Size = Field(validation_alias=keys("moe_intermediate_size"))
    moe_layer_step: Size = Field(1, validation_alias=keys("decoder_sparse_step"))
    mlp_only_layers: list[Count] | None = None
    norm_topk_prob: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        first = first_layers_without(self.mlp_only_layers or [], self.num_layers, self.moe_layer_step)
        scores = "softmax" if self.norm_topk_prob else "softmax_all"
        return {**super().fields(), "first_dense_layers": first, "expert_scores": scores}


class Qwen2Moe(_QwenMoe):
    """Qwen1.5-MoE and Qwen2-MoE: biased queries, keys and values, a shared expert behind a gate."""

    num_kv_heads: Size | None = Field(16, validation_alias=keys("num_key_value_heads"))
    qkv_bias: bool = True
    shared_expert_ffn_hidden_size: Size = Field(validation_alias=keys("shared_expert_intermediate_size"))

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "qkv_bias": self.qkv_bias, "shared_expert_gate": True}


class Qwen3Moe(_QwenMoe):
    """Qwen3-MoE: queries and keys are normalised per head."""

    num_kv_heads: Size | None = Field(4, validation_alias=keys("num_key_value_heads"))
    attention_bias: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "qk_norm": True}


class Llama4Text(GatedFamily):
    """Llama 4 without its image encoder: a shared expert as wide as a routed one, dense layers twice as wide.

    Every fourth layer has no rotary embedding. Its saved tensors are the same but for tables of cosines and sines.
    """

    has_experts = True
    derived_from: ClassVar[Mapping[str, str]] = {
        **GatedFamily.derived_from, "shared_expert_ffn_hidden_size": "intermediate_size",
    }

    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    head_dim: Size | None = 128
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 500_000
    ffn_hidden_size: Size = Field(validation_alias=keys("intermediate_size_mlp"))
    attention_bias: bool = False
    num_experts: Size = Field(validation_alias=keys("num_local_experts", "num_experts"))
    moe_topk: Size = Field(validation_alias=keys("num_experts_per_tok"))
    moe_ffn_hidden_size: Size = Field(validation_alias=keys("intermediate_size"))
    moe_layer_step: Size = Field(1, validation_alias=keys("interleave_moe_layer_step"))
    moe_layers: list[Count] | None = None
    use_qk_norm: bool = True

    def fields(self) -> dict[str, Any]:
        """As the base class says; a list of layers with experts goes before the step."""
        first, step = 0, self.moe_layer_step
        if self.moe_layers is not None:
            first, step = first_layer_and_step(self.moe_layers, self.num_layers, step)
        return {
            **super().fields(),
            "shared_expert_ffn_hidden_size": self.moe_ffn_hidden_size,
            "first_dense_layers": first,
            "moe_layer_step": step,
            "expert_scores": "sigmoid",
            "own_router": True,
            "note": "; ".join((*self.uncounted(), _UNTURNED)),
        }

    def uncounted(self) -> tuple[str, ...]:
        """As the base class says."""
        return (_L2_NORM,) if self.use_qk_norm else ()


class DeepseekV2(GatedFamily):
    """DeepSeek-V2: latent attention, several shared experts side by side, dense layers first."""

    has_experts = True
    derived_from: ClassVar[Mapping[str, str]] = {
        "head_dim": "qk_nope_head_dim", "shared_expert_ffn_hidden_size": "n_shared_experts",
        "expert_groups": "n_group", "expert_group_topk": "topk_group",
    }

    attention_bias: Annotated[bool, only(False, why=": a bias of latent attention is not counted yet")] = False
    mlp_bias: NoBias = False
    num_experts: Size = Field(validation_alias=keys("n_routed_experts", "num_experts", "num_local_experts"))
    moe_topk: Size = Field(validation_alias=keys("num_experts_per_tok"))
    moe_ffn_hidden_size: Size = Field(validation_alias=keys("moe_intermediate_size"))
    n_shared_experts: Count | None = 2
    norm_topk_prob: bool = False
    routed_scaling_factor: Factor = 1.0
    n_group: Count | None = None
    topk_group: Count | None = None
    first_dense_layers: Count = Field(0, validation_alias=keys("first_k_dense_replace"))
    moe_layer_freq: Annotated[int, only(1, why=": dense layers after the first with experts are not counted yet")] = 1
    q_lora_rank: Size | None = 1536
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size

    def width_of_a_head(self) -> int:
        """Return the width of a query or key head; the file's own ``head_dim`` is that of the rotary part."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def scores(self) -> str:
        """Return the scores of experts; a softmax of all over the sum of the chosen is that of the chosen."""
        return "softmax" if self.norm_topk_prob else "softmax_all"

    def fields(self) -> dict[str, Any]:
        """As the base class says; one group of experts is as good as none."""
        groups = self.n_group if self.n_group and self.n_group > 1 else 0
        return {
            **super().fields(),
            "q_lora_rank": self.q_lora_rank or 0,
            "shared_expert_ffn_hidden_size": (self.n_shared_experts or 0) * self.moe_ffn_hidden_size,
            "expert_scores": self.scores(),
            "expert_groups": groups,
            "expert_group_topk": (self.topk_group or 0) if groups else 0,
        }


class DeepseekV3(DeepseekV2):
    """DeepSeek-V3 and R1, with the modules that predict further tokens."""

    num_kv_heads: Size | None = Field(128, validation_alias=keys("num_key_value_heads"))
    n_shared_experts: Count | None = 1
    norm_topk_prob: bool = True
    routed_scaling_factor: Factor = 2.5
    n_group: Count | None = 8
    topk_group: Count | None = 4
    first_dense_layers: Count = Field(3, validation_alias=keys("first_k_dense_replace"))
    num_mtp_layers: Count = Field(validation_alias=keys("num_nextn_predict_layers", "num_mtp_layers"))

    def scores(self) -> str:
        """Sigmoids, whatever the file says: transformers has nothing else."""
        return "sigmoid"


class Glm4MoeLite(DeepseekV3):
    """GLM-4.7-Flash: DeepSeek-V3 whose file names the kind of every layer, or means a dense first one."""

    derived_from: ClassVar[Mapping[str, str]] = {
        **DeepseekV3.derived_from, "first_dense_layers": "mlp_layer_types",
    }

    num_kv_heads: Size | None = Field(20, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    norm_topk_prob: Annotated[bool, only(True, why=": other scores are not counted yet")] = True
    routed_scaling_factor: Factor = 1.8
    n_group: Count | None = 1
    topk_group: Count | None = 1
    q_lora_rank: Size | None = 768
    first_dense_layers: Annotated[Count, only(1, why=": Transformers reads mlp_layer_types in its place")] = (
        Field(1, validation_alias=keys("first_k_dense_replace")))
    mlp_layer_types: list[str] | None = None
    num_mtp_layers: Count = Field(0, validation_alias=keys("num_nextn_predict_layers", "num_mtp_layers"))

    def fields(self) -> dict[str, Any]:
        """As the base class says. Raises ``InputError`` for dense layers behind experts, and for two rotary parts."""
        if self.head_dim not in (None, self.qk_rope_head_dim):
            raise InputError("head_dim", self.head_dim, "must be qk_rope_head_dim, for which Transformers takes it",
                             str(self.qk_rope_head_dim))
        first = first_sparse(self.mlp_layer_types, self.num_layers)
        return super().fields() if first is None else {**super().fields(), "first_dense_layers": first}


class SarvamMla(DeepseekV3):
    """Sarvam 105B: DeepSeek-V3 without modules of further tokens, whose older files call YaRN by another name."""

    num_kv_heads: Size | None = Field(None, validation_alias=keys("num_key_value_heads"))
    q_lora_rank: Size | None = None
    num_experts: Size = Field(128, validation_alias=keys("n_routed_experts", "num_experts", "num_local_experts"))
    n_shared_experts: Count | None = Field(1, validation_alias=keys("n_shared_experts", "num_shared_experts"))
    n_group: Count | None = 1
    topk_group: Count | None = 1
    first_dense_layers: Count = Field(1, validation_alias=keys("first_k_dense_replace"))
    num_mtp_layers: Count = Field(0, validation_alias=keys("num_nextn_predict_layers", "num_mtp_layers"))

    def rotary(self) -> dict[str, Any]:
        """As the base class says."""
        scaling = self.rope_scaling
        if isinstance(scaling, Mapping) and "deepseek_yarn" in (scaling.get("type"), scaling.get("rope_type")):
            return rotary_of(self.rope_theta, {**scaling, "rope_type": "yarn"}, "rope_scaling")
        return super().rotary()


def first_sparse(kinds: list[str] | None, num_layers: int) -> int | None:
    """Return the number of dense layers before those with experts; None without a list of all layers' kinds.

    Raises ``InputError`` for dense layers behind experts.
    """
    if kinds is None:
        return None
    first = kinds.index("sparse") if "sparse" in kinds else 0
    if len(kinds) != num_layers or kinds != ["dense"] * first + ["sparse"] * (num_layers - first):
        raise InputError("mlp_layer_types", kinds, "must have one of dense and sparse for every layer, dense ones"
                         " first, and a sparse one: others are not counted yet")
    return first


def first_layers_without(dense: list[int], num_layers: int, step: int) -> int:
    """Return the number of layers before the first with experts, which every ``step``-th has but for ``dense``.

    Layers are counted from 0 as in the file. Raises ``InputError`` unless the dense ones come first.
    """
    taken = sorted({layer for layer in dense if layer < num_layers and (layer + 1) % step == 0})
    if taken != [step * turn - 1 for turn in range(1, len(taken) + 1)]:
        raise InputError("first_dense_layers", dense, "must be the first layers, from 0 on without a gap")
    return taken[-1] + 1 if taken else 0


def first_layer_and_step(experts: list[int], num_layers: int, step: int) -> tuple[int, int]:
    """Return the number of dense layers at the start, and the step of ``experts``, layers counted from 0.

    ``step`` is that of the file, for a list of one layer. Raises ``InputError`` for a list without a step.
    """
    layers = sorted({layer for layer in experts if layer < num_layers})
    if len(layers) > 1:
        step = layers[1] - layers[0]
    start = layers[0] if layers else num_layers
    count = -(-(num_layers - start) // step)  # as numbers: a range of 2**63 layers has no length
    if not layers or (start + 1) % step or len(layers) != count or layers != [*range(start, num_layers, step)]:
        raise InputError("moe_layers", experts, "must be every layer, or every n-th, from one of them on to the last")
    return (0 if start == step - 1 else start), step


EXPERTS: Mapping[str, type[Family]] = {
    "mixtral": Mixtral,
    "qwen2_moe": Qwen2Moe,
    "qwen3_moe": Qwen3Moe,
    "llama4_text": Llama4Text,
    "deepseek_v2": DeepseekV2,
    "deepseek_v3": DeepseekV3,
    "kimi_k2": DeepseekV3,
    "glm4_moe_lite": Glm4MoeLite,
    "sarvam_mla": SarvamMla,
}
"""The families with experts, by ``model_type``."""
