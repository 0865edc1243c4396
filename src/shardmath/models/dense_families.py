"""Keys of ``config.json`` of each family of dense models, and the dimensions behind them.

One class per ``model_type``. An attribute that is called like a field of ``Model`` is that field, its alias the
key of the file; the others tell how to derive a field, or refuse a model that the ledger cannot hold. Defaults are
those of the ``transformers`` classes (``src/transformers/models/*/configuration_*.py``, release 5.23).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from annotated_types import Gt, Lt
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from shardmath.errors import InputError
from shardmath.generated.definitions import WORDS
from shardmath.models.model import Count, Model, Size
from shardmath.models.rotary import rotary_of
from shardmath.models.windows import windows_of

__all__ = ["DENSE", "GELU", "KEYS_OF_EXPERTS", "Epsilon", "Family", "GatedFamily", "Gelu", "GptFamily",
           "Llama", "NoBias", "keys", "only", "partial_width"]

KEYS_OF_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


class Only(NamedTuple):
    """Refuse every value of a key but ``values``, by a rule and the first of them in words."""

    values: tuple[object, ...]
    rule: str
    first: str

    def check(self, read: object, info: ValidationInfo) -> object:
        """Return the value that was read. Raises InputError for another one."""
        kinds = (type(read), float) if type(read) is int else (type(read),)
        if read not in [value for value in self.values if type(value) in kinds]:
            raise InputError(str(info.field_name), read, self.rule, self.first)
        return read


def only(*values: object, why: str) -> BeforeValidator:
    """Refuse every value of a key but ``values``; ``why`` ends the rule."""
    shown = [str(value).lower() if isinstance(value, bool) else repr(value) for value in values]
    one_of = "one of " if len(shown) > 1 else ""
    return BeforeValidator(Only(values, f"must be {one_of}{', '.join(shown)}{why}", shown[0]).check)


def partial_width(width: int, share: object, key: str) -> int:
    """Return the rotary part of a head of ``width`` elements; 0 for all of it. Raises InputError that blames ``key``.

    The share is rounded down, then up to pairs, in which angles come.
    """
    if type(share) not in (int, float) or not 1 <= width * share <= width:  # type: ignore[operator]
        rule = f"must be a number that leaves at least one of {width} elements of a head, and at most 1"
        raise InputError(key, share, rule, "0.25 or 1" if width >= 4 else "1")
    turned = (int(width * share) + 1) // 2 * 2  # type: ignore[operator]
    return turned if turned < width else 0


def keys(*names: str) -> AliasChoices:
    """Return the keys under which a file may give a field, the usual one first."""
    return AliasChoices(*names)


NoBias = Annotated[bool, only(False, why=": transformers builds no such bias for this model_type")]
Gated = Annotated[str, only(*WORDS["mlp"], why=" in a gated MLP")]
#: Names of GELU in ``transformers.activations``, each with the option of ``Model.gelu`` that keeps what it does.
GELU: Mapping[str, Literal["fused", "new", "fast", "python"]] = {
    "gelu": "fused", "gelu_new": "new", "gelu_fast": "fast", "gelu_python": "python", "gelu_pytorch_tanh": "fused",
    "gelu_python_tanh": "new", "gelu_accurate": "new",
}
Gelu = Annotated[str, only(*GELU, why="")]
Epsilon = Annotated[float, Gt(0), Lt(1)]


class Family(BaseModel):
    """The keys of a ``config.json`` that every family has."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    has_experts: ClassVar[bool] = False
    #: The key to blame for a field that was derived from it.
    derived_from: ClassVar[Mapping[str, str]] = {}

    hidden_size: Size
    ffn_hidden_size: Size | None = Field(validation_alias=keys("intermediate_size"))
    num_layers: Size = Field(validation_alias=keys("num_hidden_layers"))
    num_attention_heads: Size
    vocab_size: Size
    max_seq_length: Size = Field(validation_alias=keys("max_position_embeddings"))
    tied_embeddings: bool = Field(False, validation_alias=keys("tie_word_embeddings"))

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_the_family_has_not(cls, config: dict[str, Any]) -> dict[str, Any]:
        for key in KEYS_OF_EXPERTS:
            if config.get(key) and not cls.has_experts:
                raise InputError(key, config[key], "must not be there: no model of this model_type has experts")
        for field in cls.model_fields:
            first, *others = [key for key in cls.keys(field) if key in config] or [""]
            for other in others:
                if config[other] != config[first]:
                    raise InputError(other, config[other], f"must be the same as {first}")
        return config

    @classmethod
    def keys(cls, field: str) -> tuple[str, ...]:
        """Return the keys that a file may give ``field`` under, the usual one first."""
        info = cls.model_fields.get(field)
        if info is not None and isinstance(info.validation_alias, AliasChoices):
            return tuple(str(choice) for choice in info.validation_alias.choices)
        return (cls.derived_from.get(field, field),)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read the keys of the family. Raises InputError, with keys of the file."""
        try:
            return cls.model_validate(dict(config))
        except ValidationError as error:
            raise InputError.from_validation(error.errors(include_url=False)) from None

    def uncounted(self) -> tuple[str, ...]:
        """Name what such a model has and its account leaves out."""
        return ()

    def fields(self) -> dict[str, Any]:
        """Return the fields of ``Model`` but for name and source. Raises ``InputError`` with the name of a field."""
        stated = {name: getattr(self, name) for name in type(self).model_fields if name in Model.model_fields}
        return {"qkv_bias": False, "qk_norm": False, **stated}

    def hidden_size_per_head(self, when: str = "") -> int:
        """Return the width of a head; ``when`` ends the rule for ``hidden_size``. Raises InputError for a remainder."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        if hidden % heads:
            below, above = hidden // heads * heads, (hidden // heads + 1) * heads
            rule = f"must be a multiple of {self.keys('num_attention_heads')[0]} = {heads}{when}"
            raise InputError("hidden_size", hidden, rule, f"{below} or {above}" if below else str(above))
        return hidden // heads


def counted_instead(family: type[Family]) -> dict[str, Any]:
    """Return keys that a file must state because their defaults are not counted, each with a value that is."""
    stated = {}
    for field, info in family.model_fields.items():
        for item in info.metadata if info.validate_default else ():
            options = getattr(item.func, "__self__", None) if isinstance(item, BeforeValidator) else None
            if isinstance(options, Only) and info.default not in options.values:
                stated[family.keys(field)[0]] = options.values[0]
    return stated


class GatedFamily(Family):
    """Llama and what descends from it: RMSNorm, a gated MLP, grouped queries, rotary positions."""

    derived_from: ClassVar[Mapping[str, str]] = {"attention_output_bias": "attention_bias"}

    ffn_hidden_size: Size = Field(validation_alias=keys("intermediate_size"))
    num_kv_heads: Size | None = Field(None, validation_alias=keys("num_key_value_heads"))
    head_dim: Size | None = None
    norm_epsilon: Epsilon = Field(1e-6, validation_alias=keys("rms_norm_eps"))
    rope_theta: Any = 10_000
    rope_scaling: Any = None
    rope_parameters: Any = None
    hidden_act: Gated = "silu"
    attention_bias: NoBias = False
    mlp_bias: NoBias = False

    def width_of_a_head(self) -> int:
        """Return ``head_dim``, also where the file does not state it."""
        return self.head_dim or self.hidden_size_per_head(" where head_dim is absent")

    def fields(self) -> dict[str, Any]:
        """As the base class says; null stands for one key and value head per query head."""
        return {
            **super().fields(),
            "num_kv_heads": self.num_kv_heads or self.num_attention_heads,
            "head_dim": self.width_of_a_head(),
            "qkv_bias": self.attention_bias,
            "attention_output_bias": self.attention_bias,
            "mlp": self.activation(),
            **self.rotary(),
        }

    def activation(self) -> str:
        """Return the option of ``Model.mlp``."""
        return WORDS["mlp"][self.hidden_act]

    def rotary(self) -> dict[str, Any]:
        """Base and scaling of the rotary embedding."""
        key = "rope_parameters" if self.rope_parameters is not None else "rope_scaling"
        parameters = getattr(self, key)
        if isinstance(parameters, Mapping) and "full_attention" in parameters:  # one for each kind of layers
            key, parameters = f"{key}.full_attention", parameters["full_attention"]
        return rotary_of(self.rope_theta, parameters, key)


class Llama(GatedFamily):
    """Llama 1 to 3, and what is built like them with biases."""

    attention_bias: bool = False
    mlp_bias: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says; both biases together are that of all projections."""
        if self.attention_bias and self.mlp_bias:
            return {**super().fields(), "linear_bias": True, "attention_output_bias": False, "mlp_bias": False}
        return super().fields()


class Mistral(GatedFamily):
    """Mistral and Ministral, whose older ones attend to windows."""

    num_kv_heads: Size | None = Field(8, validation_alias=keys("num_key_value_heads"))
    sliding_window: Count | None = None
    layer_types: list[str] | None = None

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), **windows_of(self.sliding_window, self.layer_types)}


class Qwen2(GatedFamily):
    """Qwen2 and Qwen2.5: q, k and v have a bias, the projection after attention has none."""

    num_kv_heads: Size | None = Field(32, validation_alias=keys("num_key_value_heads"))

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "qkv_bias": True}


class Qwen3(GatedFamily):
    """Qwen3: queries and keys are normalised per head."""

    num_kv_heads: Size | None = Field(32, validation_alias=keys("num_key_value_heads"))
    head_dim: Size = 128
    attention_bias: bool = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "qk_norm": True}


class GptFamily(Family):
    """LayerNorm, GELU, one key and value head per query head, a bias on every projection."""

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {
            **super().fields(),
            "num_kv_heads": self.num_attention_heads,
            "head_dim": self.hidden_size_per_head(),
            "normalisation": "layer",
            "mlp": "gelu",
            "linear_bias": True,
            "qkv_bias": True,
        }


class Gpt2(GptFamily):
    """GPT-2, with a learned table of positions."""

    hidden_size: Size = Field(validation_alias=keys("n_embd", "hidden_size"))
    num_layers: Size = Field(validation_alias=keys("n_layer", "num_hidden_layers"))
    num_attention_heads: Size = Field(validation_alias=keys("n_head", "num_attention_heads"))
    max_seq_length: Size = Field(validation_alias=keys("n_positions", "max_position_embeddings"))
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    ffn_hidden_size: Size | None = Field(None, validation_alias=keys("n_inner"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("layer_norm_epsilon"))
    activation_function: Gelu = "gelu_new"
    add_cross_attention: Annotated[bool, only(False, why=": encoders and cross-attention are not counted yet")] = False
    reorder_and_upcast_attn: Annotated[bool, only(False, why=": attention in fp32 is not counted yet")] = False

    def fields(self) -> dict[str, Any]:
        """As the base class says; the inner width is 4 times the hidden size where it is null or absent."""
        return {
            **super().fields(),
            "ffn_hidden_size": self.ffn_hidden_size or 4 * self.hidden_size,
            "learned_positions": self.max_seq_length,
            "gelu": GELU[self.activation_function],
        }


class GptNeoX(GptFamily):
    """GPT-NeoX and Pythia: attention and MLP read the same input, a part of every head is rotary."""

    derived_from: ClassVar[Mapping[str, str]] = {"qk_rope_head_dim": "rotary_pct"}

    ffn_hidden_size: Size = Field(validation_alias=keys("intermediate_size"))
    hidden_act: Gelu = "gelu"
    attention_bias: Annotated[bool, only(True, why=": a bias of the MLP alone is not counted yet")] = True
    parallel_residual: bool = Field(True, validation_alias=keys("use_parallel_residual"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("layer_norm_eps"))
    rotary_pct: Any = 0.25
    rotary_emb_base: Any = 10_000
    rope_scaling: Any = None
    rope_parameters: Any = None

    def fields(self) -> dict[str, Any]:
        """As the base class says; the rotary part of a head is the share rounded down, then up to pairs."""
        parameters = self.rope_parameters if isinstance(self.rope_parameters, dict) else {}
        share = parameters.get("partial_rotary_factor", self.rotary_pct)
        rotary = partial_width(self.hidden_size_per_head(), share, "rotary_pct")
        key = "rope_parameters" if self.rope_parameters is not None else "rope_scaling"
        base = rotary_of(self.rotary_emb_base, getattr(self, key), key, "rotary_emb_base")
        return {**super().fields(), "qk_rope_head_dim": rotary, "gelu": GELU[self.hidden_act], **base}


DENSE: Mapping[str, type[Family]] = {
    "llama": Llama, "ministral": Mistral, "mistral": Mistral, "qwen2": Qwen2, "qwen3": Qwen3, "gpt2": Gpt2,
    "gpt_neox": GptNeoX,
}
"""The families without experts, by ``model_type``."""
