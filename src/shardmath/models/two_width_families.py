"""Keys of ``config.json`` of families whose layers without windows have heads of another width and number.

Classes as in ``shardmath.models.dense_families``, which see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from shardmath.errors import ABSENT, InputError
from shardmath.models.dense_families import Family, keys, only
from shardmath.models.gated_families import Gemma3
from shardmath.models.model import Count, Size
from shardmath.models.rotary import rotary_of
from shardmath.models.windows import FULL, SLIDING, step_of

__all__ = ["TWO_WIDTHS"]

Direction = Annotated[Any, only(None, "vision", why=": attention of text to later tokens is not counted yet")]


class Gemma4(Gemma3):
    """The language model of Gemma 4: values normalised too, layers without windows with wider and fewer heads."""

    has_experts = True  # a file names them, or none, beside the key that asks for them
    derived_from: ClassVar[Mapping[str, str]] = {**Gemma3.derived_from, "full_attention_step": "layer_types"}

    num_layers: Size = Field(30, validation_alias=keys("num_hidden_layers"))
    vocab_size: Size = 262144
    sliding_window: Size = 512
    final_logit_softcapping: float | None = None
    full_head_dim: Size = Field(512, validation_alias=keys("global_head_dim"))
    full_num_kv_heads: Size | None = Field(None, validation_alias=keys("num_global_key_value_heads"))
    keys_as_values: bool = Field(False, validation_alias=keys("attention_k_eq_v"))
    use_bidirectional_attention: Direction = None
    hidden_size_per_layer_input: Annotated[Count | None, only(
        0, None, why=": embeddings of each layer are not counted yet")] = Field(256, validate_default=True)
    num_kv_shared_layers: Annotated[Count, only(
        0, why=": keys and values shared between layers are not counted yet")] = 0
    enable_moe_block: Annotated[bool, only(False, why=": experts beside the MLP are not counted yet")] = False
    per_layer_config: dict[str, dict[str, Any]] | None = None
    # Sizes of what is not there, as the keys above say.
    vocab_size_per_layer_input: Any = None
    use_double_wide_mlp: Any = None
    top_k_experts: Any = None
    moe_intermediate_size: Any = None

    def fields(self) -> dict[str, Any]:
        """As the base class says; sizes by layer are those of layers without windows, and go before others."""
        fields, step = super().fields(), self._step()
        own = self.full_num_kv_heads if self.keys_as_values else None
        sizes = {"full_head_dim": self.full_head_dim, "full_num_kv_heads": own or fields["num_kv_heads"]}
        if self.per_layer_config is not None:
            stated = self._sizes_of_every(step)
            sizes = {"full_head_dim": stated.get("head_dim", fields["head_dim"]),
                     "full_num_kv_heads": stated.get("num_key_value_heads", fields["num_kv_heads"])}
        return {**fields, **sizes, "attention_window": self.sliding_window, "full_attention_step": step}

    def rotary(self) -> dict[str, Any]:
        """As the base class says; a part of each head turns, at the pace that it has in the whole head."""
        stated = self.rope_parameters.get(FULL) if isinstance(self.rope_parameters, Mapping) else None
        if isinstance(stated, Mapping) and stated.get("rope_type") == "proportional":
            return rotary_of(self.rope_theta, {**stated, "rope_type": "default"}, f"rope_parameters.{FULL}")
        return super().rotary()

    def _sizes_of_every(self, step: int) -> dict[str, Any]:
        """Return the sizes of every ``step``-th layer. Raises InputError if these differ, or others have their own."""
        stated = self.per_layer_config or {}
        first, *others = stated.values() or [{}]
        layers = [int(number) for number in stated if number.isdecimal()]
        alike = layers == [*range(step - 1, self.num_layers, step)] and all(sizes == first for sizes in others)
        if not alike or not set(first) <= {"head_dim", "num_key_value_heads"}:
            rule = "must give all layers without windows the same head_dim and num_key_value_heads, and others nothing"
            raise InputError("per_layer_config", stated, rule)
        return first

    def _step(self) -> int:
        """Return N where every N-th layer has no window; the last one never has. Raises InputError without such N."""
        stated = self.layer_types
        usual = [FULL if number % self.step == 0 else SLIDING for number in range(1, self.num_layers + 1)]
        kinds = [*(stated or usual)[:-1], FULL]
        step = step_of(kinds) if len(kinds) == self.num_layers else None
        if step is None or step == 1:
            rule = (f"must name {self.num_layers} layers, {FULL} every n-th and last and {SLIDING} the others: another"
                    " order of heads of two widths is not counted yet")
            raise InputError("layer_types", ABSENT if stated is None else stated, rule)
        return step


class Gemma4Unified(Gemma4):
    """The language model of Gemma 4 without encoders of images and sound: wider windows, no embeddings of layers."""

    sliding_window: Size = 1024
    max_seq_length: Size = Field(262144, validation_alias=keys("max_position_embeddings"))
    use_bidirectional_attention: Direction = "vision"
    hidden_size_per_layer_input: Annotated[Count | None, only(
        0, None, why=": Transformers has no embeddings of each layer here")] = 0


TWO_WIDTHS: Mapping[str, type[Family]] = {"gemma4_text": Gemma4, "gemma4_unified_text": Gemma4Unified}
"""These families, by ``model_type``."""
