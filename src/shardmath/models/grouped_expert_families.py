"""Keys of ``config.json`` of later families with experts and grouped heads: how each names its experts and scores them.

Classes as in ``shardmath.models.dense_families``, which see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from shardmath.errors import InputError
from shardmath.models.dense_families import Epsilon, Family, GatedFamily, NoBias, keys, only
from shardmath.models.expert_families import first_layer_and_step, first_sparse
from shardmath.models.gated_families import UNTURNED, Windows
from shardmath.models.model import Count, Factor, Size

__all__ = ["GROUPED_EXPERTS", "Sigmoid"]


class _Experts(GatedFamily):
    """Families whose experts have a width of their own."""

    has_experts = True

    num_experts: Size = Field(validation_alias=keys("num_experts", "num_local_experts", "n_routed_experts"))
    moe_topk: Size = Field(validation_alias=keys("num_experts_per_tok"))
    moe_ffn_hidden_size: Size = Field(validation_alias=keys("moe_intermediate_size"))


class Sigmoid(_Experts):
    """Sigmoids with a bias of each expert that is not trained, shared experts side by side, dense layers first."""

    derived_from: ClassVar[Mapping[str, str]] = {
        **_Experts.derived_from, "shared_expert_ffn_hidden_size": "n_shared_experts", "expert_groups": "n_group",
        "expert_group_topk": "topk_group",
    }

    num_experts: Size = Field(validation_alias=keys("n_routed_experts", "num_experts", "num_local_experts"))
    n_shared_experts: Count | None = None
    n_group: Count | None = 1
    topk_group: Count | None = 1
    routed_scaling_factor: Factor = 1.0
    norm_topk_prob: Annotated[bool, only(True, why=": scores that are not divided by their sum are not counted yet")]
    first_dense_layers: Count = Field(0, validation_alias=keys("first_k_dense_replace"))

    def fields(self) -> dict[str, Any]:
        """As the base class says; one group of experts is as good as none."""
        groups = self.n_group if self.n_group and self.n_group > 1 else 0
        return {
            **super().fields(),
            "shared_expert_ffn_hidden_size": (self.n_shared_experts or 0) * self.moe_ffn_hidden_size,
            "expert_scores": "sigmoid",
            "expert_groups": groups,
            "expert_group_topk": (self.topk_group or 0) if groups else 0,
        }


class Glm4Moe(Sigmoid):
    """GLM-4.5 to 4.7: half of every head is rotary, queries, keys and values have a bias; modules of further tokens."""

    derived_from: ClassVar[Mapping[str, str]] = {
        **Sigmoid.derived_from, "qk_rope_head_dim": "partial_rotary_factor", "qkv_bias": "attention_bias",
    }

    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    attention_bias: bool = False
    use_qk_norm: bool = False
    n_shared_experts: Count | None = 1
    norm_topk_prob: Annotated[bool, only(True, why=": other scores are not counted yet")] = True
    first_dense_layers: Count = Field(1, validation_alias=keys("first_k_dense_replace"))
    partial_rotary_factor: Any = 0.5
    num_mtp_layers: Count = Field(0, validation_alias=keys("num_nextn_predict_layers", "num_mtp_layers"))

    def fields(self) -> dict[str, Any]:
        """As the base class says; the projection after attention has no bias."""
        return {
            **super().fields(), "attention_output_bias": False, "qk_norm": self.use_qk_norm,
            "qk_rope_head_dim": rotary_part(self.width_of_a_head(), self.rope_parameters, self.partial_rotary_factor),
        }


class SarvamMoe(Glm4Moe):
    """Sarvam 30B: GLM 4.5 with whole heads rotary, and with norms of queries and keys."""

    num_experts: Size = Field(128, validation_alias=keys("n_routed_experts", "num_experts", "num_local_experts"))
    num_kv_heads: Size | None = Field(4, validation_alias=keys("num_key_value_heads"))
    head_dim: Size | None = 64
    norm_epsilon: Epsilon = Field(1e-6, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 8_000_000
    attention_bias: bool = Field(False, validation_alias=keys("attention_bias", "use_qkv_bias"))
    use_qk_norm: bool = True
    n_shared_experts: Count | None = Field(1, validation_alias=keys("n_shared_experts", "num_shared_experts"))
    partial_rotary_factor: Any = 1.0


class ExaoneMoe(Sigmoid, Windows):
    """K-EXAONE: queries and keys normalised per head, three of four layers with windows, the others not rotary."""

    step = 4
    derived_from: ClassVar[Mapping[str, str]] = {
        **Sigmoid.derived_from, "shared_expert_ffn_hidden_size": "num_shared_experts",
        "first_dense_layers": "mlp_layer_types",
    }

    num_experts: Size = Field(64, validation_alias=keys("num_experts", "n_routed_experts", "num_local_experts"))
    moe_topk: Size = Field(8, validation_alias=keys("num_experts_per_tok"))
    moe_ffn_hidden_size: Size = Field(1024, validation_alias=keys("moe_intermediate_size"))
    num_kv_heads: Size | None = Field(32, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    sliding_window: Count | None = 4096
    n_shared_experts: Count | None = Field(1, validation_alias=keys("num_shared_experts", "n_shared_experts"))
    norm_topk_prob: Annotated[bool, only(True, why=": other scores are not counted yet")] = True
    routed_scaling_factor: Factor = 2.5
    first_dense_layers: Count = Field(1, validation_alias=keys("first_k_dense_replace"))
    mlp_layer_types: list[str] | None = None

    def fields(self) -> dict[str, Any]:
        """As the base class says; with windows the other layers have no rotary embedding."""
        first = first_sparse(self.mlp_layer_types, self.num_layers)
        fields = {**super().fields(), "qk_norm": True}
        return {**fields, "first_dense_layers": self.first_dense_layers if first is None else first,
                "note": UNTURNED if fields["attention_window"] else ""}


class HyV3(Sigmoid):
    """Hy3: queries and keys normalised per head, a dense layer first."""

    derived_from: ClassVar[Mapping[str, str]] = {
        **Sigmoid.derived_from, "shared_expert_ffn_hidden_size": "num_shared_experts",
        "first_dense_layers": "mlp_layer_types",
    }

    num_experts: Size = Field(192, validation_alias=keys("num_experts", "num_local_experts"))
    moe_topk: Size = Field(8, validation_alias=keys("num_experts_per_tok"))
    moe_ffn_hidden_size: Size = Field(1536, validation_alias=keys("moe_intermediate_size"))
    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    head_dim: Size = 128
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 11_158_840
    attention_bias: bool = False
    mlp_bias: NoBias = False
    n_shared_experts: Count | None = Field(1, validation_alias=keys("num_shared_experts"))
    norm_topk_prob: Annotated[bool, only(True, why=": Transformers has nothing else")] = True
    routed_scaling_factor: Factor = Field(2.826, validation_alias=keys("router_scaling_factor"))
    first_dense_layers: Annotated[Count, only(1, why=": Transformers reads mlp_layer_types in its place")] = Field(
        1, validation_alias=keys("first_k_dense_replace"))
    mlp_layer_types: list[str] | None = None
    enable_moe_fp32_combine: bool = True

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        first = first_sparse(self.mlp_layer_types, self.num_layers)
        return {**super().fields(), "qk_norm": True, "first_dense_layers": 1 if first is None else first,
                "model_type": "hy_v3" if self.enable_moe_fp32_combine else "hy_v3_low"}


class Dots1(Sigmoid):
    """dots.llm1: queries and keys are normalised per head."""

    attention_bias: bool = False
    sliding_window: Count | None = 4096
    max_window_layers: Count | None = 62
    layer_types: list[str] | None = None

    def fields(self) -> dict[str, Any]:
        """As the base class says. Raises ``InputError`` for a layer with a window."""
        kinds = self.layer_types or []
        windowed = self.sliding_window is not None and (self.max_window_layers or 0) < self.num_layers
        if any(kind != "full_attention" for kind in kinds) or (not kinds and windowed):
            raise InputError("sliding_window", self.sliding_window, "must be null: windows are not counted yet here")
        return {**super().fields(), "qk_norm": True}


class SolarOpen(Sigmoid):
    """Solar Open: sigmoids and a shared expert in every layer; nothing is as wide as ``intermediate_size``."""

    derived_from: ClassVar[Mapping[str, str]] = {**Sigmoid.derived_from, "qkv_bias": "attention_bias"}

    ffn_hidden_size: Size = Field(10240, validation_alias=keys("intermediate_size"))
    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    head_dim: Size = 128
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 1_000_000
    attention_bias: bool = False
    n_shared_experts: Count | None = 1
    norm_topk_prob: Annotated[bool, only(True, why=": other scores are not counted yet")] = True
    first_dense_layers: Annotated[int, only(0, why=": Transformers has experts in every layer")] = Field(
        0, validation_alias=keys("first_k_dense_replace"))
    use_qk_norm: Annotated[bool, only(False, why=": Transformers builds no such norm here")] = False
    partial_rotary_factor: Annotated[float, only(1.0, why=": parts of heads are not counted yet here")] = 1.0

    def fields(self) -> dict[str, Any]:
        """As the base class says; the projection after attention has no bias."""
        return {**super().fields(), "attention_output_bias": False}


class GraniteMoe(_Experts):
    """Granite 3 with experts in every layer, and a shared one where the file gives its width."""

    moe_ffn_hidden_size: Size = Field(validation_alias=keys("intermediate_size"))
    num_experts: Size = Field(8, validation_alias=keys("num_local_experts", "num_experts"))
    moe_topk: Size = Field(2, validation_alias=keys("num_experts_per_tok"))
    attention_bias: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "expert_scores": "softmax"}


class GraniteMoeShared(GraniteMoe):
    """Granite 3 with a shared expert."""

    shared_expert_ffn_hidden_size: Count = Field(0, validation_alias=keys("shared_intermediate_size"))


class HunyuanMoe(_Experts):
    """Hunyuan-A13B: one shared expert as wide as a routed one, queries and keys normalised per head.

    Its files list some sizes for every layer, which Transformers and the ledger have for all layers alike.
    """

    derived_from: ClassVar[Mapping[str, str]] = {
        **_Experts.derived_from, "shared_expert_ffn_hidden_size": "intermediate_size",
    }

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    moe_ffn_hidden_size: Size = Field(validation_alias=keys("intermediate_size"))
    num_experts: Size = Field(validation_alias=keys("num_experts", "num_local_experts"))
    moe_topk: Any = 1
    attention_bias: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {
            **super().fields(), "qk_norm": True, "expert_scores": "softmax",
            "moe_topk": same_in_all_layers("moe_topk", self.moe_topk),
            "shared_expert_ffn_hidden_size": self.moe_ffn_hidden_size,
        }


class Ernie4Moe(_Experts):
    """ERNIE 4.5 with experts from one layer on to the last, or to another one that leaves no dense layer behind it."""

    derived_from: ClassVar[Mapping[str, str]] = {
        **_Experts.derived_from, "shared_expert_ffn_hidden_size": "moe_num_shared_experts",
        "first_dense_layers": "moe_layer_start_index",
    }

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 500_000
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    num_experts: Size = Field(64, validation_alias=keys("moe_num_experts", "num_experts"))
    moe_topk: Size = Field(6, validation_alias=keys("moe_k", "num_experts_per_tok"))
    moe_num_shared_experts: Count | None = 2
    moe_layer_start_index: Count = 1
    moe_layer_end_index: int = -1
    moe_layer_interval: Size = 1
    use_bias: Annotated[bool, only(False, why=": biases of attention and MLP are not counted yet here")] = False

    def fields(self) -> dict[str, Any]:
        """As the base class says. Raises ``InputError`` for layers with experts that leave out a later one."""
        last = self.num_layers - 1 if self.moe_layer_end_index == -1 else self.moe_layer_end_index
        step = self.moe_layer_interval
        if last > self.num_layers or step > self.num_layers:
            raise InputError("moe_layer_end_index", last, f"must be below num_hidden_layers = {self.num_layers}")
        layers = [layer for layer in range(step - 1, last + 1, step) if layer >= self.moe_layer_start_index]
        first, step = first_layer_and_step(layers, self.num_layers, step)
        return {
            **super().fields(), "expert_scores": "softmax",
            "first_dense_layers": first, "moe_layer_step": step,
            "shared_expert_ffn_hidden_size": (self.moe_num_shared_experts or 0) * self.moe_ffn_hidden_size,
        }


def rotary_part(width: int, parameters: object, share: object) -> int:
    """Return a head's rotary elements, 0 for all: a share rounded to pairs. Raises InputError for a wrong share."""
    if isinstance(parameters, dict):
        share = parameters.get("partial_rotary_factor", share)
    if not isinstance(share, int | float) or isinstance(share, bool) or not 1 <= width * share <= width:
        raise InputError("partial_rotary_factor", share, "must leave at least one element of a head, and be at most 1",
                         "0.5 or 1")
    turned = (int(width * share) + 1) // 2 * 2
    return turned if turned < width else 0


def same_in_all_layers(key: str, stated: object) -> int:
    """Return a number that a file may list for every layer. Raises ``InputError`` unless all are the same."""
    listed = stated if isinstance(stated, list) else [stated]
    first = listed[0] if listed else None
    if type(first) is not int or first < 1 or any(type(each) is not int or each != first for each in listed):
        raise InputError(key, stated, "must be a number of 1 or more, the same in all layers")
    return first


GROUPED_EXPERTS: Mapping[str, type[Family]] = {
    "dots1": Dots1,
    "ernie4_5_moe": Ernie4Moe,
    "exaone_moe": ExaoneMoe,
    "glm4_moe": Glm4Moe,
    "granitemoe": GraniteMoe,
    "granitemoeshared": GraniteMoeShared,
    "hunyuan_v1_moe": HunyuanMoe,
    "hy_v3": HyV3,
    "sarvam_moe": SarvamMoe,
    "solar_open": SolarOpen,
}
"""Later families with experts and grouped heads, by ``model_type``."""
