"""Record every allocation of Megatron-Core's latent attention, with the norm before it, forward and backward.

Attention is Megatron-Core's own, on one rank of fake groups. Projections of Transformer Engine, FlashAttention and
Megatron-Core's fused kernels of RoPE are stand-ins that make what those make.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from megatron.core.transformer import multi_latent_attention as latent
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.multi_latent_attention import MLASelfAttention, MLASelfAttentionSubmodules
from megatron.core.transformer.transformer_config import MLATransformerConfig
from oracles.megatron_core import engine, fused
from oracles.megatron_core.megatron_cpu import BF16, Shape, one_rank
from oracles.megatron_core.megatron_expert_steps import Record
from torch import Tensor

_ENGINE = {
    "TELinear": engine.Linear, "TEColumnParallelLinear": engine.ColumnParallelLinear,
    "fused_apply_mla_rope_for_q": engine.latent_queries, "fused_apply_mla_rope_for_kv": engine.latent_keys,
}


class _Layer(torch.autograd.Function):
    """Read the output of attention and return its gradient, without a record of either."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return output.new_zeros(0)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return ctx.gradient, None


def _attention(shape: Shape, is_fused: bool, separate: bool) -> Any:
    settings = MLATransformerConfig(
        num_layers=1, hidden_size=shape["h"], num_attention_heads=shape["a"], ffn_hidden_size=shape["f"],
        q_lora_rank=shape["lq"] or None, kv_lora_rank=shape["lk"], qk_head_dim=shape["d"] - shape["dr"],
        qk_pos_emb_head_dim=shape["dr"], v_head_dim=shape["dv"], rope_type="yarn", normalization="RMSNorm",
        tensor_model_parallel_size=shape["t"], sequence_parallel=bool(shape["sp"]), params_dtype=BF16, bf16=True,
        add_bias_linear=False, attention_dropout=0.0, hidden_dropout=0.0, gradient_accumulation_fusion=False,
        use_cpu_initialization=True, perform_initialization=False)
    # Behind the checks of a GPU.
    settings.apply_rope_fusion, settings.gradient_accumulation_fusion = is_fused, not separate
    up = engine.LayerNormColumnParallelLinear
    return MLASelfAttention(settings, MLASelfAttentionSubmodules(
        linear_q_proj=engine.ColumnParallelLinear, linear_q_down_proj=engine.Linear, linear_q_up_proj=up,
        linear_kv_down_proj=engine.Linear, linear_kv_up_proj=up, core_attention=fused.FlashAttentionOfView,
        linear_proj=engine.RowParallelLinear, q_layernorm=IdentityOp, kv_layernorm=IdentityOp,
    ), 1, AttnMaskType.causal)


def recorded(shape: Shape, draw: Random, is_fused: bool, separate: bool) -> Record:
    """Record both passes of attention, beside inputs, tables and the gradient of its output."""
    with one_rank(shape, draw), pytest.MonkeyPatch.context() as patched:
        for name, stand_in in _ENGINE.items():
            patched.setattr(latent, name, stand_in)
        attention, norm = _attention(shape, is_fused, separate), engine.Norm()
        for weight in attention.parameters():  # gradients are added to a buffer at once
            weight.register_post_accumulate_grad_hook(lambda made: setattr(made, "grad", None))
        share = shape["s"] // (shape["t"] if shape["sp"] else 1)
        hidden, gradient = (torch.zeros(share, shape["b"], shape["h"], dtype=BF16) for _ in range(2))
        hidden.requires_grad_()
        attention(norm(hidden), None)  # fills the caches of tables
        with Record(hidden, gradient, *attention.parameters(), *_tables(attention, share)) as record:
            _Layer.apply(attention(norm(hidden), None)[0], gradient).backward(torch.zeros(0, dtype=BF16))
    return record


def _tables(attention: Any, tokens: int) -> list[Tensor]:
    tables = attention.rotary_pos_emb
    cached = [tables.cos_cached, tables.sin_cached] if hasattr(tables, "cos_cached") else []
    return [*cached, tables(tokens * attention.config.tensor_model_parallel_size, packed_seq=False)[0]]
