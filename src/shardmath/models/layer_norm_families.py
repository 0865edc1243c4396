"""Keys of ``config.json`` of families with LayerNorm and rotary positions, each with what it does otherwise.

Classes as in ``shardmath.models.dense_families``, which see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from shardmath.models.dense_families import GELU, Epsilon, Family, GatedFamily, Gelu, Llama, NoBias, keys, only
from shardmath.models.gated_families import UNTURNED, Partial, Windows
from shardmath.models.model import Count, Size

__all__ = ["LAYER_NORM"]


class Olmo(GatedFamily):
    """OLMo 1: LayerNorm without weights."""

    norm_epsilon: Epsilon = 1e-5
    attention_bias: bool = False
    clip_qkv: Annotated[float | None, only(None, why=": clipped queries, keys and values are not counted yet")] = None

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "normalisation": "layer_plain"}


class StableLm(Partial):
    """StableLM 2 and 3B: a gate, a quarter of each head rotary; the largest has parallel residuals with one norm."""

    num_kv_heads: Size | None = Field(32, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("layer_norm_eps"))
    qkv_bias: bool = Field(False, validation_alias=keys("use_qkv_bias"))
    qk_norm: bool = Field(False, validation_alias=keys("qk_layernorm"))
    parallel_residual: bool = Field(False, validation_alias=keys("use_parallel_residual"))
    partial_rotary_factor: Any = 0.25

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {
            **super().fields(), "normalisation": "layer", "qkv_bias": self.qkv_bias,
            "qk_norms": "heads" if self.qk_norm else "head", "one_norm": self.parallel_residual,
        }


class Cohere(GatedFamily):
    """Command R and Aya 23: parallel residuals with one norm, which has no bias."""

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("layer_norm_eps"))
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    rope_theta: Any = 500_000
    attention_bias: bool = False
    qk_norm: bool = Field(False, validation_alias=keys("use_qk_norm"))

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {
            **super().fields(), "normalisation": "layer_unbiased", "parallel_residual": True, "one_norm": True,
            "qk_norms": "heads" if self.qk_norm else "head",
        }


class Cohere2(Cohere, Windows):
    """Command R7B, Command A and Tiny Aya: as Command R, three of four layers with windows, the others not rotary."""

    step = 4
    rope_theta: Any = 10_000
    sliding_window: Count | None = 4096
    qk_norm: Annotated[bool, only(False, why=": Transformers builds no such norm for this model_type")] = Field(
        False, validation_alias=keys("use_qk_norm"))

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "note": UNTURNED}


class Nemotron(Partial):
    """Nemotron-3, Nemotron-4 and Minitron: squared ReLU without a gate, half of each head rotary."""

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("norm_eps"))
    hidden_act: Annotated[str, only("relu2", why=" in the MLP of this model_type")] = "relu2"
    attention_bias: bool = False
    mlp_bias: bool = False
    partial_rotary_factor: Any = 0.5

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "normalisation": "layer"}

    def activation(self) -> str:
        """As the base class says."""
        return "relu2"


class Jais2(Llama):
    """Jais 2: squared ReLU without a gate, biases of all projections."""

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("layer_norm_eps"))
    hidden_act: Annotated[str, only("relu2", why=" in the MLP of this model_type")] = "relu2"
    attention_bias: bool = True
    mlp_bias: bool = True

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "normalisation": "layer"}

    def activation(self) -> str:
        """As the base class says."""
        return "relu2"


class StarCoder2(Windows):
    """StarCoder 2: GELU without a gate, a bias of every projection or of none."""

    num_kv_heads: Size | None = Field(2, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = 1e-5
    hidden_act: Gelu = "gelu_pytorch_tanh"
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    linear_bias: bool = Field(True, validation_alias=keys("use_bias"))

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "normalisation": "layer", "gelu": GELU[self.hidden_act],
                "qkv_bias": self.linear_bias}

    def activation(self) -> str:
        """As the base class says."""
        return "gelu"


class Phi(Partial):
    """Phi 1, 1.5 and 2: parallel residuals with one norm, GELU without a gate, biases everywhere."""

    derived_from: ClassVar[Mapping[str, str]] = {"qk_rope_head_dim": "partial_rotary_factor"}

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("layer_norm_eps"))
    hidden_act: Gelu = "gelu_new"
    attention_bias: NoBias = False
    partial_rotary_factor: Any = 0.5
    qk_layernorm: Annotated[bool, only(False, why=": such norms are not counted yet")] = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {
            **super().fields(), "normalisation": "layer", "gelu": GELU[self.hidden_act], "linear_bias": True,
            "qkv_bias": True, "head_bias": True, "parallel_residual": True, "one_norm": True,
        }

    def activation(self) -> str:
        """As the base class says."""
        return "gelu"


LAYER_NORM: Mapping[str, type[Family]] = {
    "cohere": Cohere, "cohere2": Cohere2, "jais2": Jais2, "nemotron": Nemotron, "olmo": Olmo, "phi": Phi,
    "stablelm": StableLm, "starcoder2": StarCoder2,
}
"""These families, by ``model_type``."""
