"""Keys of ``config.json`` of families from before Llama, with LayerNorm and an MLP without a gate.

Classes as in ``shardmath.models.dense_families``, which see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from shardmath.errors import InputError
from shardmath.models.dense_families import Epsilon, Family, GptFamily, keys, only
from shardmath.models.model import Size

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


EARLY: Mapping[str, type[Family]] = {"bloom": Bloom, "opt": Opt}
"""These families, by ``model_type``."""
