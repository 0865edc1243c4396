"""Keys of ``config.json`` of families with latent attention and without experts.

Classes as in ``shardmath.models.dense_families``, which see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from shardmath.errors import InputError
from shardmath.models.dense_families import Epsilon, Family, GatedFamily, keys, only
from shardmath.models.model import Size

__all__ = ["LATENT"]


class MiniCpm3(GatedFamily):
    """MiniCPM3: latent attention, scaled embeddings, residuals and logits."""

    derived_from: ClassVar[Mapping[str, str]] = {"head_dim": "qk_nope_head_dim"}

    num_kv_heads: Size | None = Field(40, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("rms_norm_eps"))
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    attention_bias: Annotated[bool, only(False, why=": a bias of latent attention is not counted yet")] = False
    q_lora_rank: Size | None = 768
    kv_lora_rank: Size = 256
    qk_nope_head_dim: Size = 64
    qk_rope_head_dim: Size = 32
    v_head_dim: Size | None = None

    def width_of_a_head(self) -> int:
        """Return the width of a query or key head; the file's own ``head_dim`` is that of the rotary part."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def fields(self) -> dict[str, Any]:
        """As the base class says; a value head is the share of one head where the file does not state it."""
        width = self.v_head_dim or self.hidden_size_per_head(" where v_head_dim is absent")
        return {**super().fields(), "q_lora_rank": self.q_lora_rank or 0, "v_head_dim": width}


class Youtu(MiniCpm3):
    """Youtu-LLM: latent attention of DeepSeek-V3 in a Llama."""

    num_kv_heads: Size | None = Field(16, validation_alias=keys("num_key_value_heads"))
    norm_epsilon: Epsilon = Field(1e-6, validation_alias=keys("rms_norm_eps"))
    q_lora_rank: Size | None = 1536
    kv_lora_rank: Size = 512
    qk_nope_head_dim: Size = 128
    qk_rope_head_dim: Size = 64
    v_head_dim: Size | None = 128

    def fields(self) -> dict[str, Any]:
        """As the base class says. Raises ``InputError`` for two rotary parts."""
        if self.head_dim not in (None, self.qk_rope_head_dim):
            raise InputError("head_dim", self.head_dim, "must be qk_rope_head_dim, for which Transformers takes it",
                             str(self.qk_rope_head_dim))
        return super().fields()


LATENT: Mapping[str, type[Family]] = {"minicpm3": MiniCpm3, "youtu": Youtu}
"""These families, by ``model_type``."""
