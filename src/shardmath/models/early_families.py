"""Keys of ``config.json`` of families from before Llama, with LayerNorm and an MLP without a gate.

Classes as in ``shardmath.models.dense_families``, which see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from shardmath.errors import InputError
from shardmath.models.dense_families import GELU, Epsilon, Family, Gelu, GptFamily, keys, only
from shardmath.models.model import Size
from shardmath.models.rotary import rotary_of

__all__ = ["EARLY"]


class Opt(GptFamily):
    """OPT: a learned table of positions, of which the first two rows are for padding, and ReLU."""

    ffn_hidden_size: Size = Field(3072, validation_alias=keys("ffn_dim"))
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    activation_function: Annotated[str, only("relu", why=" in the MLP of this model_type")] = "relu"
    word_embed_proj_dim: Size | None = None
    do_layer_norm_before: Annotated[bool, only(True, why=": norms behind residuals are not counted yet")] = True
    remove_final_layer_norm: Annotated[bool, only(False, why=": a model without a final norm is not counted yet")] = (
        Field(False, validation_alias=keys("_remove_final_layer_norm")))
    enable_bias: Annotated[bool, only(True, why=": such projections are not counted yet")] = True
    layer_norm_elementwise_affine: Annotated[
        bool, only(True, why=": norms without weights are not counted yet in this model_type")] = True

    def fields(self) -> dict[str, Any]:
        """As the base class says. Raises InputError for an embedding that is projected to the hidden size."""
        width = self.word_embed_proj_dim
        if width not in (None, self.hidden_size):
            rule = f"must be hidden_size = {self.hidden_size}: projections of embeddings are not counted yet"
            raise InputError("word_embed_proj_dim", width, rule, str(self.hidden_size))
        return {**super().fields(), "mlp": "relu", "learned_positions": self.max_seq_length + 2, "norm_epsilon": 1e-5}


class Bloom(GptFamily):
    """BLOOM: slopes of the scores for positions (ALiBi), and a norm of the word embedding."""

    hidden_size: Size = Field(validation_alias=keys("hidden_size", "n_embed"))
    num_layers: Size = Field(validation_alias=keys("n_layer", "num_hidden_layers"))
    num_attention_heads: Size = Field(validation_alias=keys("n_head", "num_attention_heads"))
    max_seq_length: Size = Field(2048, validation_alias=keys("seq_length"))
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    ffn_hidden_size: Annotated[
        Size | None, only(None, why=": the inner width of this model_type is 4 times hidden_size")] = Field(
        None, validation_alias=keys("n_inner"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("layer_norm_epsilon"))
    apply_residual_connection_post_layernorm: Annotated[
        bool, only(False, why=": residuals of normalised tensors are not counted yet")] = False
    slow_but_exact: Annotated[bool, only(False, why=": products in slices are not counted yet")] = False

    def fields(self) -> dict[str, Any]:
        """As the base class says."""
        return {**super().fields(), "ffn_hidden_size": 4 * self.hidden_size, "alibi": True, "embedding_norm": True}


class Falcon(GptFamily):
    """Falcon: parallel residuals and GELU without biases; one key and value head, or with a new decoder several."""

    derived_from: ClassVar[Mapping[str, str]] = {"parallel_residual": "parallel_attn"}

    hidden_size: Size = Field(4544, validation_alias=keys("hidden_size", "n_embed"))
    ffn_hidden_size: Size | None = None
    num_layers: Size = Field(32, validation_alias=keys("num_hidden_layers", "n_layer"))
    num_attention_heads: Size = Field(71, validation_alias=keys("num_attention_heads", "n_head"))
    num_kv_heads: Size | None = None
    vocab_size: Size = 65024
    max_seq_length: Size = Field(2048, validation_alias=keys("max_position_embeddings"))
    tied_embeddings: bool = Field(True, validation_alias=keys("tie_word_embeddings"))
    norm_epsilon: Epsilon = Field(1e-5, validation_alias=keys("layer_norm_epsilon"))
    activation: Gelu = "gelu"
    alibi: Annotated[bool, only(False, why=": slopes of the scores (ALiBi) are not counted yet with it")] = False
    bias: Annotated[bool, only(False, why=": such biases are not counted yet")] = False
    parallel_attn: Annotated[bool, only(True, why=": sequential residuals are not counted yet with it")] = True
    new_decoder_architecture: bool = False
    multi_query: bool = True
    num_ln_in_parallel_attn: Annotated[int | None, only(None, 1, 2, why="")] = None
    rope_theta: Any = 10_000
    rope_scaling: Any = None
    rope_parameters: Any = None

    def fields(self) -> dict[str, Any]:
        """As the base class says. Raises InputError for key and value heads that are not counted yet."""
        key = "rope_parameters" if self.rope_parameters is not None else "rope_scaling"
        norms = self.num_ln_in_parallel_attn or (2 if self.new_decoder_architecture else 1)
        return {
            **super().fields(), "linear_bias": False, "qkv_bias": False, "parallel_residual": True,
            "one_norm": norms == 1, "gelu": GELU[self.activation], "num_kv_heads": self._key_heads(norms),
            "ffn_hidden_size": self.ffn_hidden_size or 4 * self.hidden_size,
            "model_type": "falcon_grouped" if self.new_decoder_architecture else "falcon",
            **rotary_of(self.rope_theta, getattr(self, key), key),
        }

    def _key_heads(self, norms: int) -> int:
        if not self.new_decoder_architecture:
            if not self.multi_query:
                raise InputError("multi_query", False, "must be true without new_decoder_architecture: a key and value"
                                 " head for every query head is not counted yet in this model_type", "true")
            if norms != 1:
                rule = "must be 1 or null without new_decoder_architecture"
                raise InputError("num_ln_in_parallel_attn", norms, rule, "1")
            return 1
        heads = self.num_kv_heads or self.num_attention_heads
        if heads == 1:
            rule = "must be above 1 with new_decoder_architecture: one that is repeated is not counted yet"
            raise InputError("num_kv_heads", heads, rule, "2")
        return heads


EARLY: Mapping[str, type[Family]] = {"bloom": Bloom, "falcon": Falcon, "opt": Opt}
"""These families, by ``model_type``."""
