"""Rules between the dimensions of a model, each with the field to blame and the nearest legal value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmath.errors import InputError, nearest_divisors

if TYPE_CHECKING:
    from shardmath.models.model import Model

__all__ = ["refuse_contradictions"]


def refuse_contradictions(model: Model) -> None:
    """Raise InputError for the first rule that the fields of ``model`` break together."""
    for rule in (_heads, _heads_without_windows, _biases, _activation, _positions, _experts, _expert_layers,
                 _latent_attention, _ledger):
        rule(model)


def _heads(model: Model) -> None:
    heads, kv_heads = model.num_attention_heads, model.num_kv_heads
    if heads % kv_heads:
        rule = f"must divide num_attention_heads = {heads}"
        raise InputError("num_kv_heads", kv_heads, rule, nearest_divisors(kv_heads, heads))


def _heads_without_windows(model: Model) -> None:
    """Check heads of layers without windows: there are layers of both kinds, and key heads share out the queries."""
    if not model.full_head_dim:
        _refuse_any(model, ("full_num_kv_heads", "keys_as_values"), "full_head_dim")
        return
    heads, kv_heads, why = model.num_attention_heads, model.full_num_kv_heads, "with full_head_dim"
    _need(model, ("attention_window", "full_num_kv_heads"), why)
    if heads % kv_heads:
        raise InputError("full_num_kv_heads", kv_heads, f"must divide num_attention_heads = {heads}",
                         nearest_divisors(kv_heads, heads))
    if not 2 <= model.full_attention_step <= model.num_layers:
        rule = f"must be from 2 to num_layers = {model.num_layers} {why}: some layers have windows, and some have none"
        raise InputError("full_attention_step", model.full_attention_step, rule, str(model.num_layers))
    if not model.qk_norm:
        raise InputError("qk_norm", False, f"must be true {why}: without is not counted yet", "true")
    for field in ("num_experts", "kv_lora_rank", "qk_rope_head_dim", "learned_positions"):
        if getattr(model, field):
            raise InputError(field, getattr(model, field), f"must be 0 {why}: both are not counted yet", "0")


def _biases(model: Model) -> None:
    if model.linear_bias and not model.qkv_bias and not model.kv_lora_rank:
        rule = "must be true with linear_bias, which is the bias of every projection"
        raise InputError("qkv_bias", False, rule, "true")


def _activation(model: Model) -> None:
    if model.mlp == "swiglu_clamped" and not model.num_experts:
        raise InputError("mlp", model.mlp, "must be another one without experts, which alone have it", "swiglu")
    if model.mlp != "gelu" and model.gelu != "fused":
        raise InputError("gelu", model.gelu, f"must be fused with mlp = {model.mlp}", "fused")
    if model.full_attention_step and not model.attention_window:
        raise InputError("full_attention_step", model.full_attention_step, "must be 0 without attention_window", "0")
    if model.one_norm and not model.parallel_residual:
        raise InputError("one_norm", True, "must be false without parallel_residual", "false")
    if model.qk_norms != "head" and not model.qk_norm:
        raise InputError("qk_norms", model.qk_norms, "must be head without qk_norm", "head")


def _positions(model: Model) -> None:
    if model.learned_positions and model.qk_rope_head_dim and not model.kv_lora_rank:  # latent attention has its own
        raise InputError("qk_rope_head_dim", model.qk_rope_head_dim, "must be 0 with learned positions", "0")
    if 0 < model.learned_positions < model.max_seq_length:
        rule = f"must be at most learned_positions = {model.learned_positions}"
        raise InputError("max_seq_length", model.max_seq_length, rule, str(model.learned_positions))
    if model.alibi and model.learned_positions:
        raise InputError("alibi", True, "must be false with learned positions", "false")
    if model.alibi and (model.qk_rope_head_dim or model.kv_lora_rank):
        raise InputError("alibi", True, "must be false with rotary embedding of queries and keys", "false")
    if (model.learned_positions or model.alibi) and model.rope_base:
        rule = f"must be 0 with {'alibi' if model.alibi else 'learned positions'}"
        raise InputError("rope_base", model.rope_base, rule, "0")
    if model.rope_scaling is not None and not model.rope_base:
        raise InputError("rope_scaling", model.rope_scaling.kind, "must not be given without rope_base")


_OF_EXPERTS = (
    "moe_topk", "moe_ffn_hidden_size", "shared_expert_ffn_hidden_size", "shared_expert_gate", "first_dense_layers",
    "expert_groups", "expert_group_topk", "own_router", "dense_mtp_layers",
)


def _experts(model: Model) -> None:
    if not model.num_experts:
        _refuse_any(model, _OF_EXPERTS, "num_experts")
        if model.expert_scores != "softmax":
            raise InputError("expert_scores", model.expert_scores, "must be softmax where num_experts is 0", "softmax")
        if model.routed_scaling_factor != 1:
            rule = "must be 1 where num_experts is 0"
            raise InputError("routed_scaling_factor", model.routed_scaling_factor, rule, "1")
        if model.moe_layer_step != 1:
            raise InputError("moe_layer_step", model.moe_layer_step, "must be 1 where num_experts is 0", "1")
        return
    _need(model, ("moe_topk", "moe_ffn_hidden_size"), f"with num_experts = {model.num_experts}")
    if model.moe_topk > model.num_experts:
        rule = f"must be at most num_experts = {model.num_experts}"
        raise InputError("moe_topk", model.moe_topk, rule, str(model.num_experts))
    if model.shared_expert_gate and not model.shared_expert_ffn_hidden_size:
        raise InputError("shared_expert_gate", True, "must be false without shared experts", "false")
    _groups_of_experts(model)


def _groups_of_experts(model: Model) -> None:
    """Check that groups share out the experts evenly, and that a token's groups have enough experts for its choice."""
    groups, chosen = model.expert_groups, model.expert_group_topk
    if not groups:
        _refuse_any(model, ("expert_group_topk",), "expert_groups")
        return
    if model.num_experts % groups:
        rule = f"must divide num_experts = {model.num_experts}"
        raise InputError("expert_groups", groups, rule, nearest_divisors(groups, model.num_experts))
    _need(model, ("expert_group_topk",), f"with expert_groups = {groups}")
    if chosen > groups:
        raise InputError("expert_group_topk", chosen, f"must be at most expert_groups = {groups}", str(groups))
    least = -(-model.moe_topk * groups // model.num_experts)
    if chosen < least:
        rule = f"must be at least {least}, whose experts suffice for moe_topk = {model.moe_topk}"
        raise InputError("expert_group_topk", chosen, rule, str(least))


def _expert_layers(model: Model) -> None:
    """Check that some layer has experts: the last multiple of the step is not one of the first dense ones."""
    if not model.num_experts:
        return
    layers, step = model.num_layers, model.moe_layer_step
    if step > layers:
        raise InputError("moe_layer_step", step, f"must be at most num_layers = {layers}", str(layers))
    last = layers - layers % step
    if model.first_dense_layers >= last:
        rule = f"must be below {last}, the last layer that may have experts"
        raise InputError("first_dense_layers", model.first_dense_layers, rule, str(last - 1))


def _latent_attention(model: Model) -> None:
    if model.kv_lora_rank:
        _need(model, ("qk_rope_head_dim", "v_head_dim"), "with latent attention")
    else:
        _refuse_any(model, ("q_lora_rank", "v_head_dim"), "kv_lora_rank")
    if model.qk_rope_head_dim >= model.head_dim:
        rule = f"must be below head_dim = {model.head_dim}, of which it is a part"
        below = str(model.head_dim - 1) if model.head_dim > 1 else None
        raise InputError("qk_rope_head_dim", model.qk_rope_head_dim, rule, below)
    if not model.kv_lora_rank:
        return
    if model.num_kv_heads != model.num_attention_heads:
        rule = f"must equal num_attention_heads = {model.num_attention_heads} with latent attention"
        raise InputError("num_kv_heads", model.num_kv_heads, rule, str(model.num_attention_heads))
    for field in ("qkv_bias", "qk_norm", "attention_output_bias", "attention_sinks"):
        if getattr(model, field):
            raise InputError(field, True, "must be false with latent attention", "false")


def _ledger(model: Model) -> None:
    """Refuse what is known of models and not in the ledger, so that nothing is left out silently."""
    if model.num_mtp_layers and not model.num_experts:
        raise InputError("num_mtp_layers", model.num_mtp_layers, "must be 0: not counted yet without experts", "0")
    if model.num_mtp_layers and model.num_layers % model.moe_layer_step and not model.dense_mtp_layers:
        rule = "must be true where the last layer is dense, as which Megatron-Core makes those of further predictions"
        raise InputError("dense_mtp_layers", False, rule, "true")


def _refuse_any(model: Model, fields: tuple[str, ...], absent: str) -> None:
    for field in fields:
        value = getattr(model, field)
        if value:
            none = "false" if isinstance(value, bool) else "0"
            raise InputError(field, value, f"must be {none} where {absent} is 0", none)


def _need(model: Model, fields: tuple[str, ...], why: str) -> None:
    for field in fields:
        if not getattr(model, field):
            raise InputError(field, 0, f"must be at least 1 {why}", "1")
