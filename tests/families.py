"""The families of models: what their config.json says, and their parameters counted part by part from dimensions.

Counted anew here, layer by layer: neither the catalogue nor the ledger must be checked with the ledger's formulas.
"""

import csv
import json
import warnings
from pathlib import Path
from typing import Any

from counted import DEFAULTS

from shardmath.errors import InputWarning
from shardmath.input.parameters import model_values
from shardmath.models.model import Model
from shardmath.symbolic.accounts import build
from shardmath.symbolic.components import all_components
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import HUGGINGFACE, LLAMA, MEGATRON
from shardmath.symbolic.ledger import Place
from shardmath.symbolic.parameters import BY_NAME

DATA = Path(__file__).parent / "data"

#: Keys of published and of small config.json files that decide shapes, by model.
CONFIGS: dict[str, dict[str, Any]] = json.loads((DATA / "family_configs.json").read_text())

with open(DATA / "parameter_counts_families.csv", newline="") as table:
    #: Parameters by part, as transformers' own classes build them.
    COUNTED: dict[str, dict[str, str]] = {row["model"]: row for row in csv.DictReader(table)}

#: Parallel residuals are counted in Hugging Face alone, whose fused projection has as many parameters.
NEOX = HUGGINGFACE.with_choices(rope="joined", value="view", projections="fused")

#: What the ledger has no row for, by model of the tables; the reader refuses these models.
NOT_HELD = {
    "small llama, attention_bias": "attention_bias",
    "small llama, mlp_bias": "mlp_bias",
}


def read_config(folder: Path, config: dict[str, Any]) -> Model:
    """The model that a config.json with these keys means."""
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    with warnings.catch_warnings():  # what a key changes is the business of tests/test_config_remarks.py
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
    biases = "linear" if model.linear_bias else "qkv"
    terms = build((NEOX if model.parallel_residual else MEGATRON).with_choices(**model.architecture, biases=biases))
    names = ("stage.all_parameters", "model.all_parameters", "model.active_parameters")
    known = {**DEFAULTS, **{BY_NAME[name].letter: value for name, value in model_values(model).items()}}
    numbers = evaluate(tuple(terms.closure(names)), known)
    assert numbers["stage.all_parameters"] == numbers["model.all_parameters"]  # all of it on one rank
    return {name: int(numbers[f"model.{name}_parameters"]) for name in ("all", "active")}


def parameters_met(model: Model) -> int:
    """Parameters of the model that one token meets, its MTP modules included."""
    whole = sum(parameters_by_part(model).values()) + parameters_of_mtp(model)
    layers = [_has_experts(model, layer) for layer in range(1, model.num_layers + 1)]
    idle = (sum(layers) + model.num_mtp_layers) * (model.num_experts - model.moe_topk)
    return whole - idle * 3 * model.hidden_size * model.moe_ffn_hidden_size


def parameters_by_part(model: Model) -> dict[str, int]:
    """Parameters of the model but for its MTP modules, under the names of the counted table."""
    h, bias = model.hidden_size, model.linear_bias
    layers = [_has_experts(model, layer) for layer in range(1, model.num_layers + 1)]
    expert_layers, norm = sum(layers), h * (2 if model.normalisation == "layer" else 1)
    return {
        "embedding": h * model.vocab_size,
        "positions": h * model.learned_positions,
        "lm_head": 0 if model.tied_embeddings else h * model.vocab_size,
        "attention": model.num_layers * (_latent(model) if model.kv_lora_rank else _grouped(model)),
        "norms": model.num_layers * 2 * norm,
        "final_norm": norm,
        "dense_mlp": (len(layers) - expert_layers) * _mlp(model, model.ffn_hidden_size, bias),
        "router": expert_layers * h * model.num_experts,
        "experts": expert_layers * model.num_experts * _mlp(model, model.moe_ffn_hidden_size),
        "shared_experts": expert_layers * _mlp(model, model.shared_expert_ffn_hidden_size),
        "shared_expert_gate": expert_layers * h * model.shared_expert_gate,
    }


def parameters_of_mtp(model: Model) -> int:
    """Parameters of the MTP modules: a layer with experts, three norms, and a projection from 2h to h."""
    h = model.hidden_size
    layer = (
        _latent(model) + 2 * h + h * model.num_experts
        + model.num_experts * _mlp(model, model.moe_ffn_hidden_size)
        + _mlp(model, model.shared_expert_ffn_hidden_size)
    )
    return model.num_mtp_layers * (layer + 3 * h + 2 * h * h)


def _has_experts(model: Model, layer: int) -> bool:
    return model.num_experts > 0 and layer > model.first_dense_layers and layer % model.moe_layer_step == 0


def _grouped(model: Model) -> int:
    h, d, queries = model.hidden_size, model.head_dim, model.num_attention_heads * model.head_dim
    qkv = queries + 2 * model.num_kv_heads * d
    return h * qkv + queries * h + model.qkv_bias * qkv + model.linear_bias * h + model.qk_norm * 2 * d


def _latent(model: Model) -> int:
    h, heads, rotary = model.hidden_size, model.num_attention_heads, model.qk_rope_head_dim
    queries = heads * model.head_dim
    down, kv = model.q_lora_rank, model.kv_lora_rank
    query = h * down + down + down * queries if down else h * queries
    keys_and_values = h * (kv + rotary) + kv + kv * heads * (model.head_dim - rotary + model.v_head_dim)
    return query + keys_and_values + heads * model.v_head_dim * h


def _mlp(model: Model, width: int, bias: bool = False) -> int:
    matrices = 3 if model.mlp == "swiglu" else 2
    return matrices * model.hidden_size * width + bias * ((matrices - 1) * width + model.hidden_size)
