"""Keys of a ``config.json`` that matter to somebody and change no count: each is named in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from shardmath.errors import shortened

__all__ = ["CAUSAL", "REMARKS", "WITHOUT_EFFECT", "remarks"]

#: Ends of the names of classes that have a head over the vocabulary.
CAUSAL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_DROPOUT: Mapping[str, str] = {
    "attention_dropout": "attention_dropout", "attn_pdrop": "attention_dropout", "hidden_dropout": "hidden_dropout",
    "resid_pdrop": "hidden_dropout", "embd_pdrop": "hidden_dropout", "residual_dropout": "hidden_dropout",
    "embedding_dropout": "hidden_dropout", "dropout": "hidden_dropout",
}
_MTP = "num_nextn_predict_layers"
#: Names of unknown keys that are shown, and characters of each.
_MOST = 40
_SUBNETWORKS = ("vision_config", "audio_config")
_NOT_COUNTED = ("router_jitter_noise", "chunk_size_feed_forward", "layerdrop")
_WINDOWS = ("sliding_window", "attention_chunk_size")
#: Ends of sentences about keys that are set, by key.
REMARKS: Mapping[str, str] = {
    "quantization_config": "is not applied",
    "auto_map": "the code that it names is not read",
    **dict.fromkeys(_SUBNETWORKS, "is not counted yet: the language model alone is"),
    **{name: f"masks of dropout are counted with --{option.replace('_', '-')} alone"
       for name, option in _DROPOUT.items()},
    **dict.fromkeys(_WINDOWS, "attention is counted over whole sequences, not over windows"),
    "output_router_logits": "the load-balancing loss is counted with --kernel balance=loss alone",
    **dict.fromkeys(_NOT_COUNTED, "is not counted yet"),
}

#: Keys that change no byte and no operation that is counted, by what they say.
WITHOUT_EFFECT = frozenset(word for line in (
    # names and versions
    "_name_or_path transformers_version model_type torch_dtype dtype id2label label2id num_labels problem_type",
    "is_decoder is_encoder_decoder tf_legacy_loss finetuning_task task_specific_params name_or_path",
    # epsilons, positions, scales and how weights begin
    "rms_norm_eps layer_norm_eps layer_norm_epsilon initializer_range init_std rope_theta rope_scaling rope_parameters",
    "rope_interleave rotary_emb_base partial_rotary_factor original_max_position_embeddings n_ctx attn_scale",
    "attn_temperature_tuning floor_scale scale_attn_weights scale_attn_by_inverse_layer_idx no_rope_layers",
    "no_rope_layer_interval routed_scaling_factor scoring_func topk_method aux_loss_alpha seq_aux ep_size",
    "router_aux_loss_coef router_z_loss_coef qk_head_dim head_dim pretraining_tp max_window_layers classifier_dropout",
    "use_sliding_window layer_types num_experts num_local_experts n_routed_experts",
    # factors of embeddings, residuals and logits, and what other classes than the family's read
    "embedding_multiplier residual_multiplier attention_multiplier logits_scaling logit_scale scale_emb scale_depth",
    "dim_model_base query_pre_attn_scalar rope_local_base_freq norm_eps norm_epsilon cache_implementation",
    "layer_norm_eps use_parallel_block use_gated_activation position_embedding_type rotary_pct eod_token_id",
    "use_cla cla_share_factor use_embedding_sharing use_parallel_embedding order_of_interleaved_layers rotary_base",
    "hidden_activation hidden_act model_max_length z_loss_weight mm_tokens_per_image spatial_merge_size",
    "vision_feature_layer vision_feature_select_strategy projector_hidden_act multimodal_projector_bias",
    "image_seq_length",
    "vision_start_token_id vision_end_token_id vision_token_id image_token_id video_token_id is_composition",
    "downsample_ratio use_bidirectional_attention sliding_window_pattern _sliding_window_pattern",
    # heads that are no causal language model's, tokens and generation
    "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout",
    "bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id use_cache output_attentions",
    "output_hidden_states return_dict temperature top_k top_p do_sample max_length min_length num_beams",
    "repetition_penalty length_penalty no_repeat_ngram_size early_stopping tokenizer_class unsloth_fixed",
    # factors of tensors, which autograd keeps as numbers, and the smallest sum of scores
    "attention_multiplier embedding_multiplier logits_scaling residual_multiplier moe_norm_min moe_layer_interval",
    "moe_layer_start_index moe_layer_end_index",
    # bounds of a gate, and what says once more how MiniMax M2 and Ling normalise and score
    "swiglu_alpha swiglu_limit initial_context_length use_routing_bias qk_norm_type moe_router_enable_expert_bias",
    "use_rmsnorm embedding_initializer_range mtp_layer_types",
    "mtp_mlp_layer_types",
    "eod_token_id boi_token_index eoi_token_index image_token_index text_config",
) for word in line.split())


def remarks(
    model_type: str, config: Mapping[str, Any], outer: Mapping[str, Any], read: Collection[str], window: int,
) -> Iterator[str]:
    """Name what the account of a model leaves out or assumes.

    ``config`` holds the keys of the language model, ``outer`` those of the whole file, and ``read`` names the keys that
    its family reads, ``window`` is the one that it counts.
    """
    keys = {**outer, **config}
    shown = {name: f"{name} = {shortened(value)}" for name, value in keys.items()}
    names = keys.get("architectures")
    if isinstance(names, list) and names and not any(str(name).endswith(CAUSAL) for name in names):
        yield f"{shown['architectures']}: counted is the causal language model, with a head over the vocabulary"
    if keys.get("quantization_config"):
        trained = ("MXFP4 has no backward pass, so weights are counted in 16 bits" if model_type == "gpt_oss" else
                   "weights are counted as they are trained (--kernel base_weights=nf4 counts frozen ones in 4 bits)")
        yield f"quantization_config {REMARKS['quantization_config']}: {trained}"
    if keys.get("auto_map"):
        yield f"auto_map: {REMARKS['auto_map']}; counted is {model_type} as transformers builds it"
    for name in _SUBNETWORKS:
        if keys.get(name):
            yield f"{name} {REMARKS[name]}"
    if keys.get(_MTP) and _MTP in read:
        yield (f"{shown[_MTP]}: layers that predict further tokens are"
               " counted; 0 leaves them out, as transformers does")
    for said in dict.fromkeys(REMARKS[name] for name in _DROPOUT):
        dropped = [shown[name] for name in _DROPOUT if REMARKS[name] == said and keys.get(name)]
        if dropped:
            yield f"{', '.join(dropped)}: {said}"
    windows = [shown[name] for name in _WINDOWS if not window and keys.get(name) and _has_windows(model_type, keys)]
    if windows:
        yield f"{', '.join(windows)}: {REMARKS[_WINDOWS[0]]}"
    if keys.get("output_router_logits"):
        yield f"output_router_logits: {REMARKS['output_router_logits']}"
    precision = keys.get("torch_dtype", keys.get("dtype"))
    if precision in ("float32", "float64"):
        yield f"torch_dtype = {precision}: weights are counted in the precision of the implementation"
    yield from (f"{shown[name]} {REMARKS[name]}" for name in _NOT_COUNTED if keys.get(name) and name not in read)
    unknown = [name for name in keys if name not in {*read, *WITHOUT_EFFECT, "architectures", *REMARKS}]
    if unknown:
        more = f" and {len(unknown) - _MOST} more" if len(unknown) > _MOST else ""
        yield f"what these keys change is not counted yet: {', '.join(name[:_MOST] for name in unknown[:_MOST])}{more}"


def _has_windows(model_type: str, keys: Mapping[str, Any]) -> bool:
    """Say whether some layer has a window: Qwen's have none unless a key of their own says so."""
    types = keys.get("layer_types")
    if isinstance(types, list):
        return any(kind != "full_attention" for kind in types)
    return bool(keys.get("use_sliding_window", not model_type.startswith("qwen")))
