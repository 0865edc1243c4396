"""Keys of ``config.json`` of families with RMSNorm that descend from Llama, each with what it does otherwise.

Classes as in ``shardmath.models.dense_families``, which see. Of those whose code is not in Transformers (InternLM2,
MiniCPM, Baichuan, EXAONE 3.5) the keys are those of the code that their repositories carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from shardmath.errors import ABSENT, InputError
from shardmath.models.dense_families import Epsilon, Family, GatedFamily, Llama, NoBias, keys, only, partial_width
from shardmath.models.model import Count, Size
from shardmath.models.windows import windows_of

__all__ = ["GATED", "UNTURNED", "Partial", "Windows", "pattern_of"]

#: Said of models of which some layers have no rotary embedding; what layers keep is the same but for tables.
UNTURNED = "every fourth layer has no rotary embedding"
Gelu = Annotated[str, only("gelu_pytorch_tanh", "gelu", why=" in the gated MLP of this model_type")]


class Windows(GatedFamily):
    """Families whose layers may attend to windows; every ``step``-th does not where the file has no list."""

    step: ClassVar[int] = 0

    sliding_window: Count | None = None
    sliding_window_pattern: Any = Field(
        None, validation_alias=keys("sliding_window_pattern", "_sliding_window_pattern"))
    layer_types: list[str] | None = None

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        step = self.step if self.sliding_window_pattern is None else pattern_of(self.sliding_window_pattern)
        return {**super().fields(), **windows_of(self.sliding_window, self.layer_types, step)}


def pattern_of(pattern: object) -> int:
    """Return N where every N-th layer has no window; a pattern is a word of L and G. Raises InputError."""
    if type(pattern) is int and pattern > 0:
        return pattern
    if isinstance(pattern, str) and pattern == "L" * (len(pattern) - 1) + "G":
        return len(pattern)
    raise InputError("sliding_window_pattern", pattern, "must be a number above 0, or letters L with one G at the end")


class Partial(GatedFamily):
    """Families of which a part of every head may be rotary."""

    derived_from: ClassVar[Mapping[str, str]] = {
        **GatedFamily.derived_from, "qk_rope_head_dim": "partial_rotary_factor",
    }

    partial_rotary_factor: Any = 1.0

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        parameters = self.rope_parameters if isinstance(self.rope_parameters, dict) else {}
        share = parameters.get("partial_rotary_factor", self.partial_rotary_factor)
        width = partial_width(self.width_of_a_head(), share, "partial_rotary_factor")
        return {**super().fields(), "qk_rope_head_dim": width}


class Phi3(Partial, Windows):
    """Phi-3, Phi-4 and Phi-4-mini: queries, keys and values in one matrix, gate and up in another."""

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))


class Olmo2(GatedFamily):
    """OLMo 2: norms after attention and MLP, queries and keys normalised over all heads."""

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    attention_bias: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "norms": "post", "qk_norm": True, "qk_norms": "width"}


class Olmo3(Olmo2, Windows):
    """OLMo 3: as OLMo 2, three of four layers with windows."""

    step = 4
    rope_theta: Any = 500_000
    sliding_window: Count | None = 4096


class SmolLm3(Llama):
    """SmolLM3: every fourth layer has no rotary embedding."""

    num_kv_heads: Size | None = Field(4, validation_alias=keys("num_key_value_heads"))
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    rope_theta: Any = 2_000_000
    use_sliding_window: Annotated[bool | None, only(False, None, why=": its windows are not counted yet")] = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "note": UNTURNED}


class IquestCoder(Llama):
    """IQuest-Coder: a Llama with 8 key and value heads unless the file says otherwise."""

    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    head_dim: Size | None = 128
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    use_sliding_window: Annotated[bool | None, only(False, None, why=": Transformers has no windows here")] = False
    clip_qkv: Annotated[float | None, only(None, why=": Transformers clips nothing here")] = None


class HyperClovaX(Llama):
    """HyperCLOVA X: a Granite, with norms after attention and MLP too unless the file says otherwise."""

    use_post_norm: bool = True

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "norms": "both" if self.use_post_norm else "pre"}


class SeedOss(GatedFamily):
    """Seed-OSS: biases of queries, keys and values, and of the projection after attention if the file says so."""

    derived_from: ClassVar[Mapping[str, str]] = {}

    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    head_dim: Size | None = 128
    attention_bias: bool = True
    attention_output_bias: bool = Field(False, validation_alias=keys("attention_out_bias"))
    mlp_bias: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "attention_output_bias": self.attention_output_bias}


class Ernie45(GatedFamily):
    """ERNIE 4.5 without experts: biases of all projections or of none."""

    num_kv_heads: Size | None = Field(2, validation_alias=keys("num_key_value_heads"))
    head_dim: Size | None = 128
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    rope_theta: Any = 500_000
    linear_bias: bool = Field(False, validation_alias=keys("use_bias"))

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "qkv_bias": self.linear_bias}


class HunyuanDense(Llama):
    """Hunyuan without experts: queries and keys are normalised per head, after they were turned."""

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    mlp_bias: NoBias = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "qk_norm": True}


class Glm(Partial):
    """GLM-4 of 2024: biases of queries, keys and values; gate and up in one matrix; half of each head rotary."""

    num_kv_heads: Size | None = Field(2, validation_alias=keys("num_key_value_heads"))
    head_dim: Size | None = 128
    norm_epsilon: Epsilon = Field(1.5625e-7, validation_alias=keys("rms_norm_eps"))
    attention_bias: bool = True
    partial_rotary_factor: Any = 0.5

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "attention_output_bias": False}


class Glm4(Glm):
    """GLM-4-0414 and GLM-Z1: as GLM-4, with norms after attention and MLP too."""

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "norms": "both"}


class Gemma(GatedFamily):
    """Gemma 1: a gate with GELU, heads wider than their share of the residual stream, embeddings scaled."""

    num_kv_heads: Size | None = Field(16, validation_alias=keys("num_key_value_heads"))
    head_dim: Size | None = 256
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    hidden_act: Gelu = Field("gelu_pytorch_tanh", validation_alias=keys("hidden_act", "hidden_activation"))
    attention_bias: bool = False

    def activation(self) -> str:
        """As the base class says."""
        return "geglu"

    @model_validator(mode="before")
    @classmethod
    def _use_one_name_of_the_activation(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Drop ``hidden_act`` of files from before ``hidden_activation``, which Transformers leaves unread."""
        if config.get("hidden_activation") is not None and "hidden_act" in config:
            return {key: value for key, value in config.items() if key != "hidden_act"}
        return {key: value for key, value in config.items() if key != "hidden_activation" or value is not None}


class Gemma2(Gemma, Windows):
    """Gemma 2: norms before and after attention and MLP, bounded scores and logits, windows in every second layer."""

    step = 2
    num_kv_heads: Size | None = Field(4, validation_alias=keys("num_key_value_heads"))
    sliding_window: Count | None = 4096
    attn_logit_softcapping: float | None = 50.0
    final_logit_softcapping: float | None = 30.0

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {
            **super().fields(), "norms": "both", "attention_softcapping": self.attn_logit_softcapping is not None,
            "logit_softcapping": self.final_logit_softcapping is not None,
        }


class VaultGemma(Gemma2):
    """VaultGemma: a Gemma 2 with norms before attention and MLP alone."""

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "norms": "pre"}


class Gemma3(Gemma2):
    """The language model of Gemma 3: queries and keys normalised per head, every sixth layer whole."""

    step = 6
    hidden_size: Size = 2304
    ffn_hidden_size: Size = Field(9216, validation_alias=keys("intermediate_size"))
    num_layers: Size = Field(26, validation_alias=keys("num_hidden_layers"))
    num_attention_heads: Size = 8
    vocab_size: Size = 262208
    max_seq_length: Size = Field(131072, validation_alias=keys("max_position_embeddings"))
    rope_theta: Any = 1_000_000
    attn_logit_softcapping: Annotated[float | None, only(None, why=": Gemma 3 applies none")] = None
    final_logit_softcapping: float | None = None
    use_bidirectional_attention: Annotated[
        Any, only(False, None, why=": attention to later tokens is not counted yet")] = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "qk_norm": True}


class Exaone4(Windows):
    """EXAONE 4: norms after attention and MLP, queries and keys normalised per head; the large one with windows."""

    step = 4
    num_kv_heads: Size | None = Field(32, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    sliding_window: Count | None = 4096

    def fields(self) -> dict[str, Any]:
        """As the base class says; with windows the other layers have no rotary embedding."""
        fields = {**super().fields(), "norms": "post", "qk_norm": True}
        return {**fields, "note": UNTURNED if fields["attention_window"] else ""}


class Helium(GatedFamily):
    """Helium: a Llama whose scales multiply in fp32."""

    num_kv_heads: Size | None = Field(20, validation_alias=keys("num_key_value_heads"))
    head_dim: Size | None = 128
    norm_epsilon: Epsilon = Field(1e-8, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 100_000
    attention_bias: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says; the projection after attention has no bias."""
        return {**super().fields(), "attention_output_bias": False}


class Arcee(Llama):
    """Arcee's AFM: an MLP without a gate, with the square of ReLU."""

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    hidden_act: Annotated[str, only("relu2", why=" in the MLP of this model_type")] = "relu2"

    def activation(self) -> str:
        """As the base class says."""
        return "relu2"


class Apertus(Llama):
    """Apertus: an MLP without a gate, with xIELU; queries and keys are normalised per head."""

    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 12_000_000
    hidden_act: Annotated[str, only("xielu", why=" in the MLP of this model_type")] = "xielu"
    mlp_bias: NoBias = False
    qk_norm: Annotated[bool, only(True, why=": Transformers has nothing else")] = True
    post_norm: Annotated[bool, only(False, why=": Transformers has norms before attention and MLP alone")] = False

    def activation(self) -> str:
        """As the base class says."""
        return "xielu"


class InternLm3(GatedFamily):
    """InternLM3: biases of queries, keys and values, and of all other projections."""

    num_kv_heads: Size | None = Field(2, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    head_dim: Size | None = 128
    qkv_bias: bool = Field(False, validation_alias=keys("qkv_bias", "attention_bias"))
    bias: bool = Field(False, validation_alias=keys("bias", "mlp_bias"))
    attention_bias: bool = False
    mlp_bias: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "qkv_bias": self.qkv_bias, "attention_output_bias": self.bias,
                "mlp_bias": self.bias}


class InternLm2(GatedFamily):
    """InternLM2: a Llama with queries, keys and values in one matrix."""

    attention_bias: bool = Field(True, validation_alias=keys("bias"))
    derived_from: ClassVar[Mapping[str, str]] = {"attention_output_bias": "bias"}


class MiniCpm(Llama):
    """MiniCPM 1 and 2: a Llama with scaled embeddings, residuals and logits."""

    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    num_experts: Annotated[Count, only(0, why=": its experts are not counted yet")] = 0


class Baichuan(GatedFamily):
    """Baichuan 1 and 2 of 7 billion parameters: a Llama with queries, keys and values in one matrix."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_slopes(cls, config: dict[str, Any]) -> dict[str, Any]:
        if "max_position_embeddings" not in config:
            rule = "must be given: without it positions are a slope of the scores (ALiBi), which is not counted yet"
            raise InputError("max_position_embeddings", ABSENT, rule)
        return config


class Exaone(Llama):
    """EXAONE 3 and 3.5: a Llama under other names."""

    num_layers: Size = Field(validation_alias=keys("num_layers", "num_hidden_layers"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("layer_norm_epsilon"))
    hidden_act: Annotated[str, only("silu", why=" in a gated MLP")] = Field(
        "silu", validation_alias=keys("activation_function"))


GATED: Mapping[str, type[Family]] = {
    "apertus": Apertus, "arcee": Arcee, "baichuan": Baichuan, "ernie4_5": Ernie45, "exaone": Exaone,
    "exaone4": Exaone4, "gemma": Gemma, "gemma2": Gemma2, "gemma3_text": Gemma3, "glm": Glm, "glm4": Glm4,
    "granite": Llama, "helium": Helium, "hunyuan_v1_dense": HunyuanDense, "hyperclovax": HyperClovaX,
    "internlm2": InternLm2, "internlm3": InternLm3, "iquestcoder": IquestCoder, "minicpm": MiniCpm, "olmo2": Olmo2,
    "olmo3": Olmo3, "phi3": Phi3, "seed_oss": SeedOss, "smollm3": SmolLm3, "vaultgemma": VaultGemma,
}
"""These families, by ``model_type``."""
