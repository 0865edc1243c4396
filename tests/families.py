"""The families of models: what their config.json says, and their parameters counted part by part from dimensions.

Counted anew here, layer by layer: neither the catalogue nor the ledger must be checked with the ledger's formulas.
"""

import csv
import json
import warnings
from pathlib import Path
from typing import Any

from counted import DEFAULTS

from shardmath.configuration.choosing import choices_of
from shardmath.configuration.model_classes import missing
from shardmath.errors import InputWarning
from shardmath.input.parameters import model_values
from shardmath.models.model import Model
from shardmath.symbolic.accounts import build
from shardmath.symbolic.choices import BY_NAME as BY_AXIS
from shardmath.symbolic.components import all_components
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import IMPLEMENTATIONS, LLAMA, Implementation
from shardmath.symbolic.ledger import Place
from shardmath.symbolic.parameters import BY_NAME

DATA = Path(__file__).parent / "data"

#: Keys of published and of small config.json files that decide shapes, by model.
CONFIGS: dict[str, dict[str, Any]] = json.loads((DATA / "family_configs.json").read_text())

with open(DATA / "parameter_counts_families.csv", newline="") as table:
    #: Parameters by part, as transformers' own classes build them.
    COUNTED: dict[str, dict[str, str]] = {row["model"]: row for row in csv.DictReader(table)}

#: Families under two names, and one that no published file at hand has, by the one that stands for it.
ALIASES = {"bailing_moe_v2": "bailing_moe", "granitemoeshared": "granitemoe"}


def read_config(folder: Path, config: dict[str, Any]) -> Model:
    """The model that a config.json with these keys means."""
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    with warnings.catch_warnings():  # what a key changes is the business of tests/models/test_config_remarks.py
        warnings.simplefilter("ignore", InputWarning)
        return Model.from_config(file)


def missing_rows(model: Model) -> list[str]:
    """What the model is made of that no component of the ledger speaks of."""
    components = all_components()
    parts = [*components, *(tensor for component in components for tensor in component.tensors)]
    known = {(axis, option) for part in parts for axis, options in part.options.items() for option in options}
    choices = {axis: option for axis, option in model.architecture.items() if option != LLAMA[axis]}
    missing = [f"{axis} {option}" for axis, option in choices.items() if (axis, option) not in known]
    if model.num_mtp_layers and Place.MTP not in {component.place for component in components}:
        missing.append("multi-token prediction")
    return missing


def parameters_in_the_ledger(model: Model) -> dict[str, int]:
    """Parameters of the model, and those that a token meets, by the ledger's own terms."""
    terms = build(_counted_in(model))
    names = ("stage.all_parameters", "model.all_parameters", "model.active_parameters")
    known = {**DEFAULTS, **{BY_NAME[name].letter: value for name, value in model_values(model).items()}}
    numbers = evaluate(tuple(terms.closure(names)), known)
    assert numbers["stage.all_parameters"] == numbers["model.all_parameters"]  # all of it on one rank
    return {name: int(numbers[f"model.{name}_parameters"]) for name in ("all", "active")}


def _counted_in(model: Model) -> Implementation:
    """The implementation that has the architecture: Megatron-Core, or Transformers, whose parameters are the same."""
    for framework in ("megatron", "huggingface"):
        chosen = choices_of(framework, model)
        allowed = IMPLEMENTATIONS[framework]
        if not missing(framework, model) and all(option in allowed.options(axis) for axis, option in chosen.items()):
            needed = {name: value for axis, option in chosen.items()
                      for name, value in BY_AXIS[axis].needs.get(option, {}).items()}
            return allowed.with_choices(**chosen, **needed)
    raise AssertionError(f"nothing counts {model.architecture}")


def parameters_met(model: Model) -> int:
    """Parameters of the model that one token meets, its MTP modules included."""
    whole = sum(parameters_by_part(model).values()) + parameters_of_mtp(model)
    layers = [_has_experts(model, layer) for layer in range(1, model.num_layers + 1)]
    further = 0 if model.dense_mtp_layers else model.num_mtp_layers
    idle = (sum(layers) + further) * (model.num_experts - model.moe_topk)
    return whole - idle * _mlp(model, model.moe_ffn_hidden_size, model.linear_bias)


#: Weights of a norm for every element of what it normalises.
NORM_WEIGHTS = {"rms": 1, "layer": 2, "layer_unbiased": 1, "layer_plain": 0}


def parameters_by_part(model: Model) -> dict[str, int]:
    """Parameters of the model but for its MTP modules, under the names of the counted table."""
    h, bias = model.hidden_size, model.linear_bias or model.mlp_bias
    layers = [_has_experts(model, layer) for layer in range(1, model.num_layers + 1)]
    expert_layers, norm = sum(layers), h * NORM_WEIGHTS[model.normalisation]
    norms = 1 if model.one_norm else 4 if model.norms == "both" else 2
    slopes = 2 if model.mlp == "xielu" else 0
    return {
        "embedding": h * model.vocab_size,
        "positions": h * model.learned_positions,
        "lm_head": (0 if model.tied_embeddings else h * model.vocab_size) + model.head_bias * model.vocab_size,
        "attention": model.num_layers * (_latent(model) if model.kv_lora_rank else _grouped(model)) + _wider(model),
        "norms": (model.num_layers * norms + model.embedding_norm) * norm,
        "final_norm": norm,
        "dense_mlp": (len(layers) - expert_layers) * (_mlp(model, model.ffn_hidden_size, bias) + slopes),
        "router": expert_layers * (h + model.linear_bias) * model.num_experts,
        "experts": expert_layers * model.num_experts * _mlp(model, model.moe_ffn_hidden_size, model.linear_bias),
        "shared_experts": expert_layers * _mlp(model, model.shared_expert_ffn_hidden_size),
        "shared_expert_gate": expert_layers * h * model.shared_expert_gate,
    }


def _wider(model: Model) -> int:
    """Parameters that layers without windows have more where their heads are others (Gemma 4)."""
    if not model.full_head_dim:
        return 0
    sizes = {"head_dim": model.full_head_dim, "num_kv_heads": model.full_num_kv_heads}
    values = model.keys_as_values * model.hidden_size * model.full_head_dim * model.full_num_kv_heads
    more = _grouped(model.model_copy(update=sizes)) - _grouped(model) - values
    return model.num_layers // model.full_attention_step * more


def parameters_of_mtp(model: Model) -> int:
    """Parameters of the MTP modules: a layer with experts or a dense one, three norms, a projection from 2h to h."""
    h = model.hidden_size
    experts = (h + _mlp(model, model.moe_ffn_hidden_size)) * model.num_experts
    of_layer = experts + _mlp(model, model.shared_expert_ffn_hidden_size)
    if model.dense_mtp_layers:
        of_layer = _mlp(model, model.ffn_hidden_size)
    layer = (_latent if model.kv_lora_rank else _grouped)(model) + 2 * h + of_layer
    return model.num_mtp_layers * (layer + 3 * h + 2 * h * h)


def _has_experts(model: Model, layer: int) -> bool:
    return model.num_experts > 0 and layer > model.first_dense_layers and layer % model.moe_layer_step == 0


def _grouped(model: Model) -> int:
    h, d, queries = model.hidden_size, model.head_dim, model.num_attention_heads * model.head_dim
    qkv = queries + 2 * model.num_kv_heads * d
    output_bias = model.linear_bias or model.attention_output_bias
    scales = {"head": 2 * d, "heads": queries + model.num_kv_heads * d, "width": queries + model.num_kv_heads * d}
    norms = model.qk_norm * scales[model.qk_norms]
    sinks = model.attention_sinks * model.num_attention_heads
    return h * qkv + queries * h + model.qkv_bias * qkv + output_bias * h + norms + sinks


def _latent(model: Model) -> int:
    h, heads, rotary = model.hidden_size, model.num_attention_heads, model.qk_rope_head_dim
    queries = heads * model.head_dim
    down, kv = model.q_lora_rank, model.kv_lora_rank
    query = h * down + down + down * queries if down else h * queries
    keys_and_values = h * (kv + rotary) + kv + kv * heads * (model.head_dim - rotary + model.v_head_dim)
    return query + keys_and_values + heads * model.v_head_dim * h


def _mlp(model: Model, width: int, bias: bool = False) -> int:
    matrices = 3 if model.mlp in ("swiglu", "geglu", "swiglu_clamped") else 2
    return matrices * model.hidden_size * width + bias * ((matrices - 1) * width + model.hidden_size)
