"""Keys of ``config.json`` of families with experts whose attention or router is their own.

Classes as in ``shardmath.models.dense_families``, which see. Of those whose code is not in Transformers (Ling) the keys
are those of the code that their repositories carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from shardmath.errors import InputError
from shardmath.models.dense_families import Epsilon, Family, GatedFamily, keys, only, partial_width
from shardmath.models.expert_families import Qwen3Moe, first_sparse
from shardmath.models.gated_families import Partial, Windows
from shardmath.models.model import Count, Factor, Size
from shardmath.models.windows import windows_of

__all__ = ["FURTHER_EXPERTS"]


class Olmoe(GatedFamily):
    """OLMoE: experts in every layer, queries and keys normalised over all heads together."""

    has_experts = True

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    attention_bias: bool = False
    clip_qkv: Annotated[float | None, only(None, why=": clipped queries, keys and values are not counted yet")] = None
    num_experts: Size = Field(64, validation_alias=keys("num_experts", "num_local_experts"))
    moe_topk: Size = Field(8, validation_alias=keys("num_experts_per_tok"))
    norm_topk_prob: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {
            **super().fields(), "qk_norm": True, "qk_norms": "width", "moe_ffn_hidden_size": self.ffn_hidden_size,
            "expert_scores": "softmax" if self.norm_topk_prob else "softmax_all",
        }


class FlexOlmo(Olmoe):
    """FlexOlmo: experts of OLMoE in the layers of OLMo 2, with norms after attention and experts."""

    norm_epsilon: Epsilon = Field(1e-6, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 500_000
    clip_qkv: Annotated[float | None, only(None, why=": Transformers clips nothing here")] = None
    num_experts: Size = Field(7, validation_alias=keys("num_experts", "num_local_experts"))
    moe_topk: Size = Field(5, validation_alias=keys("num_experts_per_tok"))

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "norms": "post"}


class Mellum(Qwen3Moe, Windows):
    """Mellum 2: Qwen3-MoE whose layers may have windows, with angles of their own."""

    head_dim: Size = 128
    sliding_window: Count | None = 1024
    rope_theta: Any = 500_000
    norm_topk_prob: bool = True
    mlp_layer_types: list[str] | None = None
    moe_layer_step: Annotated[int, only(1, why=": Transformers reads mlp_layer_types in its place")] = Field(
        1, validation_alias=keys("decoder_sparse_step"))
    mlp_only_layers: Annotated[list[Count] | None, only([], None, why=": Transformers reads mlp_layer_types")] = None

    num_nextn_predict_layers: Annotated[
        Count | None, only(0, None, why=": Transformers builds no such layers here")] = None

    def fields(self) -> dict[str, Any]:
        """As the base class says; layers without a list of kinds have no windows."""
        kinds = self.layer_types or ["full_attention"] * self.num_layers
        first = first_sparse(self.mlp_layer_types, self.num_layers)
        return {**super().fields(), **windows_of(self.sliding_window, kinds), "first_dense_layers": first or 0}


class MiniMaxM2(GatedFamily):
    """MiniMax M2: sigmoids, queries and keys normalised over all heads together, a part of each head rotary."""

    has_experts = True
    derived_from: ClassVar[Mapping[str, str]] = {**GatedFamily.derived_from, "qk_rope_head_dim": "rotary_dim"}

    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    head_dim: Size = 128
    rope_theta: Any = 5_000_000
    num_experts: Size = Field(256, validation_alias=keys("num_local_experts", "num_experts"))
    moe_topk: Size = Field(8, validation_alias=keys("num_experts_per_tok"))
    rotary_dim: Size | None = None
    partial_rotary_factor: Any = 1.0
    use_qk_norm: Annotated[bool, only(True, why=": Transformers has nothing else")] = True
    scoring_func: Annotated[str, only("sigmoid", why=": Transformers has nothing else")] = "sigmoid"

    def fields(self) -> dict[str, Any]:
        """As the base class says, without modules of further tokens. Raises InputError for a large ``rotary_dim``."""
        parameters = self.rope_parameters if isinstance(self.rope_parameters, dict) else {}
        share = parameters.get("partial_rotary_factor", self.partial_rotary_factor)
        if self.rotary_dim is not None:
            if self.rotary_dim > self.head_dim:
                raise InputError("rotary_dim", self.rotary_dim, f"must be at most head_dim = {self.head_dim}",
                                 str(self.head_dim))
            share = self.rotary_dim / self.head_dim
        return {
            **super().fields(), "qk_norm": True, "qk_norms": "width", "expert_scores": "sigmoid",
            "moe_ffn_hidden_size": self.ffn_hidden_size,
            "qk_rope_head_dim": partial_width(self.head_dim, share, "partial_rotary_factor"),
        }


class GptOss(Windows):
    """GPT-OSS: trained sinks of attention, windows in every second layer, biases everywhere, a gate within bounds.

    Weights of experts are published in 4 bits (MXFP4), in which nobody trains them: they are counted as trained.
    """

    has_experts = True
    step = 2

    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    head_dim: Size = 64
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 150_000
    sliding_window: Count | None = 128
    attention_bias: Annotated[
        bool, only(True, why=": experts have biases, and attention without is not counted yet")] = True
    num_experts: Size = Field(128, validation_alias=keys("num_local_experts", "num_experts"))
    moe_topk: Size = Field(4, validation_alias=keys("num_experts_per_tok", "experts_per_token"))

    def activation(self) -> str:
        """As the base class says."""
        return "swiglu_clamped"

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {
            **super().fields(), "linear_bias": True, "attention_output_bias": False, "attention_sinks": True,
            "moe_ffn_hidden_size": self.ffn_hidden_size, "expert_scores": "softmax",
        }


class PhiMoe(Windows):
    """Phi-3.5-MoE: LayerNorm, biases of attention and of the LM head, two experts drawn one after the other."""

    has_experts = True
    derived_from: ClassVar[Mapping[str, str]] = {**Windows.derived_from, "head_bias": "lm_head_bias"}

    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 1_000_000
    attention_bias: bool = False
    head_bias: bool = Field(False, validation_alias=keys("lm_head_bias"))
    router_jitter_noise: float = 0.01
    input_jitter_noise: Annotated[float, only(0.0, why=": a factor of the input is not counted yet")] = 0.0
    num_experts: Size = Field(16, validation_alias=keys("num_local_experts", "num_experts"))
    moe_topk: Annotated[int, only(2, why=": its router draws two")] = Field(
        2, validation_alias=keys("num_experts_per_tok"))

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {
            **super().fields(), "normalisation": "layer", "moe_ffn_hidden_size": self.ffn_hidden_size,
            "expert_scores": "softmax",
        }


class Bailing(Partial):
    """Ling and Ring: experts in all but the first layers, shared ones beside them.

    Those of 2.0 have sigmoids of groups of experts, and queries and keys normalised per head; their files may carry the
    name of the older family.
    """

    has_experts = True
    derived_from: ClassVar[Mapping[str, str]] = {
        **Partial.derived_from, "shared_expert_ffn_hidden_size": "num_shared_experts", "expert_groups": "n_group",
        "expert_group_topk": "topk_group", "expert_scores": "score_function",
    }

    qkv_bias: bool = Field(False, validation_alias=keys("use_qkv_bias"))
    use_bias: Annotated[bool, only(False, why=": biases of all projections are not counted yet here")] = False
    norm_head: Annotated[bool, only(False, why=": a normalised LM head is not counted yet")] = False
    qk_norm: bool = Field(False, validation_alias=keys("use_qk_norm"))
    num_experts: Size
    moe_topk: Size = Field(validation_alias=keys("num_experts_per_tok"))
    moe_ffn_hidden_size: Size = Field(validation_alias=keys("moe_intermediate_size"))
    num_shared_experts: Count | None = 0
    first_dense_layers: Count = Field(0, validation_alias=keys("first_k_dense_replace"))
    score_function: Annotated[str, only("softmax", "sigmoid", why="")] = "softmax"
    norm_topk_prob: bool
    n_group: Count | None = None
    topk_group: Count | None = None
    routed_scaling_factor: Factor = 1.0
    num_mtp_layers: Count = Field(0, validation_alias=keys("num_nextn_predict_layers"))

    @model_validator(mode="before")
    @classmethod
    def _know_the_scores_of_the_second(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Return the class of 2.0, which alone reads groups of experts, has sigmoids where the file says nothing."""
        return {"score_function": "sigmoid", **config} if "n_group" in config else config

    def fields(self) -> dict[str, Any]:
        """As the base class says. Raises ``InputError`` for sigmoids that are not divided by their sum."""
        sigmoid, groups = self.score_function == "sigmoid", self.n_group if self.n_group and self.n_group > 1 else 0
        if sigmoid and not self.norm_topk_prob:
            raise InputError("norm_topk_prob", False, "must be true with sigmoid scores: others are not counted yet",
                             "true")
        softmax = "softmax" if self.norm_topk_prob else "softmax_all"
        return {
            **super().fields(), "qkv_bias": self.qkv_bias, "own_router": True,
            "expert_scores": "sigmoid" if sigmoid else softmax, "expert_groups": groups,
            "expert_group_topk": (self.topk_group or 0) if groups else 0,
            "shared_expert_ffn_hidden_size": (self.num_shared_experts or 0) * self.moe_ffn_hidden_size,
        }


FURTHER_EXPERTS: Mapping[str, type[Family]] = {
    "bailing_moe": Bailing, "bailing_moe_v2": Bailing, "flex_olmo": FlexOlmo, "gpt_oss": GptOss,
    "mellum": Mellum, "minimax_m2": MiniMaxM2, "olmoe": Olmoe, "phimoe": PhiMoe,
}
"""These families, by ``model_type``."""
