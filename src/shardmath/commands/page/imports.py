"""Read pasted files on the page: keys of ``config.json`` by family, and flags of Megatron-LM by parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from shardmath.configuration.choosing import choices_of
from shardmath.errors import InputError
from shardmath.formats.megatron_layout import SIZES, SWITCHES
from shardmath.formats.megatron_model import FLAGS_OF
from shardmath.generated.definitions import IMPLEMENTATIONS
from shardmath.input.parameters import model_values
from shardmath.models.class_kernels import CLASS_KERNELS
from shardmath.models.config_json import FAMILIES
from shardmath.models.model import Model

#: Keys of any small model, to see which kernels a family has and what its keys set.
_DENSE: Mapping[str, Any] = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 8, "head_dim": 128,
    "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096, "hidden_act": "silu",
    "tie_word_embeddings": False,
}
_CONFIGS: tuple[Mapping[str, Any], ...] = (
    _DENSE, {**_DENSE, "hidden_act": "gelu"}, {**_DENSE, "hidden_act": "gelu_pytorch_tanh"},
    *({**_DENSE, name: 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
      for name in ("num_local_experts", "num_experts")),
)
#: Flags of sizes that stand outside of the tables of layout and model.
_SIZES = {"seq_length": "seq-length", "micro_batch_size": "micro-batch-size", "global_batch_size": "global-batch-size",
          "virtual_pipeline": "num-virtual-stages-per-pipeline-rank",
          "expert_tensor_parallel": "expert-tensor-parallel-size"}


def family_data(models: Iterable[Model]) -> dict[str, dict[str, Any]]:
    """Return families by ``model_type``: a model with the same kernels, usual values, and the keys of each value.

    Left out are families that have no model on the page, and those whose files need or set more than most.
    """
    by_kernels: dict[str, str] = {}
    for model in models:
        by_kernels.setdefault(_kernels(model), model.name)
    known = {}
    for model_type in FAMILIES:
        for config in _CONFIGS:
            usual = _read(model_type, config)
            keys = None if usual is None or _kernels(usual) not in by_kernels else _keys(model_type, config)
            if usual is not None and keys is not None:
                without = {key: value for key, value in config.items() if key != "tie_word_embeddings"}
                plain = _read(model_type, without) or usual
                known[model_type] = {"model": by_kernels[_kernels(usual)], "keys": keys, "usual": model_values(plain)}
                break
    return known


def _keys(model_type: str, config: Mapping[str, Any]) -> dict[str, list[str]] | None:
    """Return the keys that set each value of the shape, found by changing one after the other.

    None where a key sets a value to another number than its own: the page reads no such files.
    """
    family, usual = FAMILIES[model_type], _read(model_type, config)
    assert usual is not None
    before, keys = model_values(usual), dict[str, list[str]]()
    for names in map(family.keys, family.model_fields):
        for key in (name for name in names if name in config and isinstance(config[name], int)):
            changed = _another(key, config[key])
            after = _read(model_type, {**config, key: changed})
            if after is None:
                return None
            for name, size in model_values(after).items():
                if size != before[name] and size != changed:
                    return None
                if size != before[name]:
                    keys[name] = [*names]
    return keys


def flag_data() -> dict[str, dict[str, str]]:
    """Return flags of Megatron-LM by the name of the parameter: those with a number, and switches."""
    switches = {**SWITCHES, "sequence_parallel": "sequence-parallel"}
    return {"sizes": {**FLAGS_OF, **SIZES, **_SIZES}, "switches": switches}


def _another(key: str, value: int) -> int:
    """Another value of a key that every model may have."""
    if isinstance(value, bool):
        return not value
    return value // 2 if key == "num_key_value_heads" else 2 * value


def _read(model_type: str, config: Mapping[str, Any]) -> Model | None:
    """Return the model of a file of a family; None where the file needs other keys."""
    try:
        fields = FAMILIES[model_type].read({"model_type": model_type, **config}).fields()
        named = model_type if model_type in CLASS_KERNELS else ""
        return Model(name=model_type, source=model_type, **{"model_type": named, **fields})
    except (InputError, ValidationError):
        return None


def _kernels(model: Model) -> str:
    """Return the choices of kernels for a model with each implementation."""
    choices = []
    for implementation in IMPLEMENTATIONS:
        try:
            choices.append(sorted(choices_of(implementation, model).items()))
        except InputError:
            choices.append([])
    return repr(choices)
