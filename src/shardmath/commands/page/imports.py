"""Read pasted files on the page: keys of ``config.json`` by family, and flags of Megatron-LM by parameter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from shardmath.configuration.choosing import choices_of
from shardmath.errors import InputError
from shardmath.formats import megatron_flags
from shardmath.formats.launch import NODES, OF_LAUNCHER, PROCESSES
from shardmath.formats.megatron import OTHER_PROGRAMS, run_of
from shardmath.formats.megatron_layout import MODULES, SIZES, SWITCHES
from shardmath.formats.megatron_model import FLAGS_OF
from shardmath.formats.options import Options
from shardmath.generated.definitions import IMPLEMENTATIONS
from shardmath.input.parameters import model_values
from shardmath.models.class_kernels import CLASS_KERNELS
from shardmath.models.config_json import FAMILIES, TEXT_NAMES, WITH_TEXT
from shardmath.models.dense_families import KEYS_OF_EXPERTS
from shardmath.models.model import Model
from shardmath.models.remarks import CAUSAL, REMARKS, WITHOUT_EFFECT
from shardmath.models.unread import UNREAD

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
#: Usual values of fields that some family must have; no two sizes are the same.
_NEEDED: Mapping[str, Any] = {
    "hidden_size": 1024, "ffn_hidden_size": 2816, "num_layers": 12, "num_attention_heads": 8, "vocab_size": 32000,
    "max_seq_length": 4096, "num_experts": 16, "moe_topk": 2, "moe_ffn_hidden_size": 512,
    "shared_expert_ffn_hidden_size": 768, "kv_lora_rank": 448, "qk_nope_head_dim": 112, "qk_rope_head_dim": 48,
    "v_head_dim": 80, "num_mtp_layers": 1, "norm_topk_prob": True,
}
#: Flags of sizes that stand outside of the tables of layout and model.
_SIZES = {"seq_length": "seq-length", "micro_batch_size": "micro-batch-size", "global_batch_size": "global-batch-size",
          "virtual_pipeline": "num-virtual-stages-per-pipeline-rank",
          "expert_tensor_parallel": "expert-tensor-parallel-size"}
#: Values to try for a key that sets no size, of every type; one that is no legal value of the key tells nothing.
_VALUES: tuple[Any, ...] = (
    True, False, 1, 2, 512, 1e-5, 0.5, 2.0, 500_000, "silu", "gelu", "gelu_pytorch_tanh", "sigmoid", "softmax",
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "default", "rope_theta": 500_000, "partial_rotary_factor": 0.5},
    ["full_attention"] * 8, ["sliding_attention"] * 8, [0, 1], [],
)
#: Flags of small runs, each of which asks for other flags: a dense model, one with experts, one with latent attention.
_RUN = {"num-layers": "8", "hidden-size": "1024", "num-attention-heads": "8", "seq-length": "4096",
        "vocab-size": "32000", "max-position-embeddings": "4096",
        "micro-batch-size": "1", "bf16": "true", "position-embedding-type": "rope"}
_RUNS: tuple[Mapping[str, str], ...] = (
    _RUN, {**_RUN, "num-experts": "8", "moe-router-num-groups": "2", "moe-router-group-topk": "1",
           "moe-router-load-balancing-type": "aux_loss", "moe-grouped-gemm": "true"},
    {**_RUN, "multi-latent-attention": "true", "qk-layernorm": "true", "rope-type": "yarn"},
    {**_RUN, "fp8-format": "hybrid", "transformer-impl": "transformer_engine", "optimizer-cpu-offload": "true",
     "use-precision-aware-optimizer": "true", "use-distributed-optimizer": "true"},
    {"encoder-num-layers": "8", "encoder-seq-length": "4096", "use-rope-scaling": "true",
     **{flag: word for flag, word in _RUN.items() if flag not in ("num-layers", "seq-length")}},
    {**_RUN, "use-megatron-fsdp": "true", "data-parallel-sharding-strategy": "optim_grads_params",
     "use-distributed-optimizer": "true", "ckpt-format": "fsdp_dtensor"},
)


def family_data(models: Iterable[Model]) -> dict[str, dict[str, Any]]:
    """Return families by ``model_type``: a model with the same kernels, usual values, and the keys of each value.

    Left out are families that have no model on the page, and those whose files need or set more than most.
    """
    by_kernels: dict[str, str] = {}
    for model in models:
        by_kernels.setdefault(_kernels(model), model.name)
    known = {}
    for model_type in FAMILIES:
        for config in _configs(model_type):
            usual = _read(model_type, config)
            keys = None if usual is None or _kernels(usual) not in by_kernels else _keys(model_type, config)
            if usual is not None and keys is not None:
                without = {key: value for key, value in config.items() if key != "tie_word_embeddings"}
                plain = _read(model_type, without) or usual
                known[model_type] = {"model": by_kernels[_kernels(usual)], "keys": keys, "usual": model_values(plain),
                                     "absent": _absent(model_type, keys),
                                     "needed": _needed(model_type),
                                     "read": _other_keys(model_type, config, keys),
                                     "experts": FAMILIES[model_type].has_experts}
                break
    return known


def family_models(models: Iterable[Model]) -> list[Model]:
    """Return small models of families whose kernels no model has: their files need formulas of their own.

    One model stands for all families with the same kernels.
    """
    kernels = {_kernels(model) for model in models}
    small: dict[str, Model] = {}
    for model_type in FAMILIES:
        configs = [(config, _read(model_type, config)) for config in _configs(model_type)]
        usual = [model for config, model in configs if model is not None and _keys(model_type, config) is not None]
        if usual and not any(_kernels(model) in kernels for model in usual):
            small.setdefault(_kernels(usual[0]), usual[0])
    return list(small.values())


def _configs(model_type: str) -> tuple[Mapping[str, Any], ...]:
    """Return small files to try for a family."""
    return (*_CONFIGS, _usual_config(model_type))


def unread_data(models: Iterable[Model], known: Collection[str]) -> dict[str, str]:
    """Return why the page reads no file of a family, by ``model_type``; it reads those of ``known`` families."""
    kernels = {_kernels(model) for model in models}
    reasons = {name: f"it is {missing.nearest} with {missing.component}, which is not counted yet"
               for name, missing in UNREAD.items()}
    return reasons | {name: _why_unread(name, kernels) for name in FAMILIES if name not in known}


def _why_unread(model_type: str, kernels: Collection[str]) -> str:
    """Say what of a family stands in the way: its kernels, or sizes that are no key of the file."""
    config = _usual_config(model_type)
    usual = _read(model_type, config)
    if usual is None or (_kernels(usual) not in kernels and _keys(model_type, config) is not None):
        return "no model of this page has its kernels"
    derived = [name for name, size in model_values(usual).items() if size > 1 and size not in config.values()]
    return f"sizes are computed from other keys ({', '.join(derived) or 'they change together'})"


def _usual_config(model_type: str) -> dict[str, Any]:
    """Return a small file of a family: the keys that it must have, and heads that its defaults allow."""
    family = FAMILIES[model_type]
    needed = [name for name, info in family.model_fields.items() if info.is_required()]
    config = {family.keys(name)[0]: _NEEDED[name] for name in needed}
    usual = {"num_kv_heads": 8, "head_dim": 128, "tied_embeddings": False}
    return {**config, **{family.keys(name)[0]: size for name, size in usual.items() if name in family.model_fields}}


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
    if "num_kv_heads" not in keys and before["num_kv_heads"] != before["num_attention_heads"]:
        return None  # the page takes as many as query heads where no key says how many
    return keys


def _needed(model_type: str) -> list[tuple[str, ...]]:
    """Return the keys that a file must have, each with its other names."""
    family = FAMILIES[model_type]
    return [family.keys(field) for field, info in family.model_fields.items() if info.is_required()]


def _absent(model_type: str, keys: Mapping[str, Sequence[str]]) -> dict[str, int | None]:
    """Return the sizes that a file need not state, each with its default; None for one that follows from others."""
    family, defaults = FAMILIES[model_type], dict[str, int | None]()
    for field, info in family.model_fields.items():
        default = info.default
        if not info.is_required() and (default is None or isinstance(default, int)):
            defaults |= {name: default for name, names in keys.items() if tuple(names) == family.keys(field)}
    return defaults


def _other_keys(
    model_type: str, config: Mapping[str, Any], keys: Mapping[str, Sequence[str]],
) -> dict[str, list[Any] | None]:
    """Return the keys of a family that set no size, each with the values for which the page is right; None for all."""
    family, sizes = FAMILIES[model_type], {name for names in keys.values() for name in names}
    usual, others = _read(model_type, config), dict[str, list[Any] | None]()
    assert usual is not None
    for field, info in family.model_fields.items():
        default = [] if info.is_required() else [info.get_default(call_default_factory=True)]
        for key in (name for name in family.keys(field) if name not in sizes):
            read = [_read(model_type, {**config, key: value}) for value in _VALUES]
            changed = any(model is not None and _shape(model) != _shape(usual) for model in read)
            free = any(model is not None for model in read) and not changed
            others[key] = None if free else [*default, *([config[key]] if key in config else [])]
    return others


def _shape(model: Model) -> tuple[dict[str, int], str]:
    return model_values(model), _kernels(model)


def config_data() -> dict[str, Any]:
    """Return what is said of keys of ``config.json`` that no family reads: those without effect, and sentences."""
    return {"silent": sorted({*WITHOUT_EFFECT, "architectures"}), "remarks": REMARKS, "causal": CAUSAL,
            "experts": KEYS_OF_EXPERTS, "with_text": WITH_TEXT, "text_names": TEXT_NAMES}


def flag_data() -> dict[str, Any]:
    """Return flags of Megatron-LM by the name of the parameter, and how the commands take all others."""
    switches = {**SWITCHES, "sequence_parallel": "sequence-parallel"}
    return {
        "sizes": {**FLAGS_OF, **SIZES, **_SIZES}, "switches": switches, "modules": MODULES,
        "elsewhere": sorted(_asked()), "idle": sorted(megatron_flags.WITHOUT_EFFECT),
        "launcher": {"sizes": (NODES, PROCESSES), "flags": OF_LAUNCHER},
        "uncounted": megatron_flags.UNCOUNTED, "refused": megatron_flags.REFUSED, "off": megatron_flags.OFF,
        "programs": OTHER_PROGRAMS,
    }


def _asked() -> set[str]:
    """Return all flags that the commands look at in small runs."""
    asked: set[str] = set()
    for run in _RUNS:
        options = Options({flag: (word,) for flag, word in run.items()})
        run_of(options, "run")
        asked |= options.asked
    return asked


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
