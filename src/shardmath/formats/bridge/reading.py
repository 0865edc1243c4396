"""Recipes of Megatron-Bridge: Python functions that are followed, never run, over those of the wheel as data.

``shardmath.formats.bridge.wheel`` has the settings of recipes of the wheel, and those of its bridges from Hugging Face.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from shardmath.errors import InputError, nearest_names
from shardmath.formats.bridge.layers import (
    EXAONE_4,
    GEMMA_2,
    GEMMA_3,
    PACKING,
    PARTS,
    PATTERN,
    PROVIDERS,
    as_flags_say,
    bridge_words,
    refuse_attention,
    with_own_layers,
)
from shardmath.formats.bridge.wheel import wheel, words_from
from shardmath.formats.megatron.writing import expert_flags, model_flags
from shardmath.formats.nemo import reading as nemo
from shardmath.formats.nemo.writing import entry
from shardmath.formats.options import Options
from shardmath.formats.run import Run
from shardmath.formats.scripts.python_file import Interpreter
from shardmath.formats.scripts.python_modules import follow
from shardmath.formats.scripts.python_values import NOT_HERE, UNKNOWN, Built, Function, Unknown
from shardmath.formats.table import Words, is_off
from shardmath.models.model import Model

#: Configuration that a recipe returns, and the sections of it that change memory.
CONTAINER = "ConfigContainer"
SECTIONS = ("model", "train", "ddp", "optimizer", "mixed_precision", "peft", "dataset", "comm_overlap")
#: Keys of these sections that say how data is read and when something is written.
_LEFT_OUT = ("dataset.", "train.", "optimizer.")
_KEPT = ("dataset.create_attention_mask", "dataset.seq_length", "dataset.sequence_length", "train.micro_batch_size",
         "train.global_batch_size", "optimizer.optimizer", "optimizer.use_", "optimizer.main_", "optimizer.exp_",
         "optimizer.optimizer_", *PACKING)
#: The longest sequence of a packed data set, which takes the place of those of data set and model.
_OFFLINE, _SPECS, _PACKED_SIZE = PACKING[0], "offline_packing_specs", "packed_sequence_size"
_PACKED = f"dataset.{_SPECS}.{_PACKED_SIZE}"
#: The same in Megatron-Bridge up to 0.3, where it packs by itself, if the size is 1 or more.
_OLDER_SPECS = "packed_sequence_specs"
_OLDER_PACKED = f"dataset.{_OLDER_SPECS}.{_PACKED_SIZE}"
_LENGTHS = ("dataset.seq_length", "model.seq_length")
#: Said of packed data sets, none of which says how long their documents are.
_DOCUMENTS = ("packed documents are counted as full sequences: --document-length TOKENS, the mean of one, counts"
              " attention within each")
_RECIPE = "recipe"
#: Field of a model with the name of that which it was converted from.
_CONVERTED = "hf_model_id"
#: Functions that are known here: a precision by its name, and the change to another dispatcher on GPUs that have it.
_PRECISION, _FLEX_CALL = "get_mixed_precision_config", "apply_flex_dispatcher_backend"
_KNOWN = frozenset((_PRECISION, _FLEX_CALL))
#: Methods of a bridge from Hugging Face that make the settings of its model.
_CONVERSIONS = ("to_megatron_provider", "get_model_config")
#: Names of the catalogue, and the bridges of dense models and of those with experts.
_FAMILIES = {
    "llama-2": ("llama", None), "llama-3": ("llama", None), "qwen2": ("qwen2", None),
    "qwen3": ("qwen3", "qwen3_moe"), "deepseek-v2": (None, "deepseek_v2"), "deepseek-v3": (None, "deepseek_v3"),
    "kimi-k2": (None, "deepseek_v3"),  # KimiK2Bridge differs in the weight of the balance loss alone
    "glm-4.5": (None, "glm45"), "gpt-oss": (None, "gpt_oss"), "moonlight": (None, "deepseek_v3"),
    "gemma-2": (GEMMA_2, None), "gemma-3": (GEMMA_3, None), "exaone-4.0": (EXAONE_4, None), "olmoe": (None, "olmoe"),
    "k-exaone": (None, "exaone_moe"),
}
#: Settings of bridges that no row of the wheel has: those of their classes of models.
_OF_CLASSES: Mapping[str, Mapping[str, str]] = {
    GEMMA_3: {"attention_backend": "flash"}, "olmoe": {"moe_aux_loss_coeff": "0.01"},
    "exaone_moe": {
        "moe_grouped_gemm": "true", "moe_permute_fusion": "true", "moe_router_dtype": "fp32",
        "moe_router_enable_expert_bias": "true", "moe_router_load_balancing_type": "none", "moe_z_loss_coeff": "0.001",
        "moe_shared_expert_overlap": "true", "moe_token_dispatcher_type": "alltoall", "mtp_num_layers": "1",
        "bias_activation_fusion": "false", "gradient_accumulation_fusion": "false", "masked_softmax_fusion": "false",
    },
}
#: Functions that make an optimizer and its schedule.
_OPTIMIZERS = {"distributed_fused_adam_with_cosine_annealing": "adam", "distributed_muon_with_cosine_annealing": "muon",
               "distributed_fused_adam_with_cosine_annealing_samples": "adam"}
#: Fields of every model that recipes ask for before anybody set them.
_USUAL = {
    "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1,
    "expert_model_parallel_size": 1, "virtual_pipeline_model_parallel_size": None, "sequence_parallel": False,
    "use_transformer_engine_op_fuser": False, "use_te_rng_tracker": False, "cuda_graph_impl": "none",
}
#: Names of models, of their classes and of their recipes that are no decoders of text with attention in all layers,
#: and their noun.
_KINDS = (
    (re.compile(r"Qwen3-Next|Qwen3\.5|Qwen35|qwen3_next|qwen35"), "models with linear attention"),
    (re.compile(r"VL\b|VLM|VLModel|Omni|Audio|Vision|GLM-4\.5V|Kimi-K2\.5|gemma-3-(4|12|27)b|[Gg]emma-?4|Ministral-3"
                r"|EXAONE-4\.5|Step-3\.7|_omni|_vl_"), "models of images or sound"),
    (re.compile(r"Flux|Wan|Diffusion|DiT|flux|_diffusion"), "diffusion models"),
    (re.compile(r"Nemotron-(3|H|Nano)|Hybrid|Mamba|NemotronH|nemotron_(3|h|nano)"), "hybrid models"),
    (re.compile(r"DeepSeek-V4|GLM-5"), "models with sparse attention"),
)
#: Kinds of models that are refused by name.
NOUNS = tuple(noun for _, noun in _KINDS)
#: Ends of the ramp of YaRN in Megatron-Core, which no flag says.
_RAMP = {"beta_fast": 32.0, "beta_slow": 1.0}
#: Settings of CUDA graphs, which are idle without them, and of what a GPU decides when it starts.
_OF_GRAPHS = ("model.cuda_graph_scope", "model.cuda_graph_warmup_steps")
_FLEX = "model.moe_flex_dispatcher_backend"


def read(path: str, text: str, name: str, settings: Mapping[str, str]) -> Run:
    """Return the run of the configuration that a Python file makes. Raises InputError that blames a key."""
    interpreter = Interpreter(path, _outside)
    interpreter.outside = partial(_of_checkout, interpreter)
    names = follow(interpreter, path, _KNOWN)
    configuration = _configuration(interpreter, path, text, settings.get(_RECIPE), names)
    model = configuration.fields.get("model")
    if isinstance(model, Built):
        _refuse_kind("model", model.name)
    if isinstance(model, Unknown) or (isinstance(model, Built) and isinstance(model.fields.get(_CONVERTED), Unknown)):
        _refuse_kind(_RECIPE, settings.get(_RECIPE, ""))  # the name of a recipe is all that is known of its model
    if isinstance(model, Unknown):
        raise InputError("model", "unknown", "must be known without running the file: what makes it is not here")
    words = dict(words_of(configuration))
    if words.get("model.vocab_size") is None and words.get(f"model.{_CONVERTED}") is None:
        words |= _tokenizer_of(configuration)
    others = {key: (value,) for key, value in settings.items() if key != _RECIPE}
    unknown = tuple(key for key in unknown_keys(configuration) if key not in others)
    run = ofwords_from(path, name, words, others, (_RECIPE,) if _RECIPE in settings else (), unknown,
                       interpreter.resolve)
    return replace(run, warnings=(*interpreter.notes, *run.warnings))


def of_recipe(
    path: str, recipe: str, name: str, settings: Mapping[str, Words], num_gpus: int | None = None,
) -> Run:
    """Return the run of a wheel's recipe with settings over it. Raises InputError for an unknown name."""
    known = wheel()["recipes"]
    if recipe not in known:
        raise InputError(_RECIPE, recipe, f"must be a recipe of Megatron-Bridge {wheel()['release']}",
                         nearest_names(recipe, known))
    run = ofwords_from(path, name, {key: words_from(value) for key, value in known[recipe].items()}, settings, ())
    return run if num_gpus is None else replace(run, arguments={**run.arguments, "num_gpus": num_gpus})


def ofwords_from(
    path: str, name: str, recipe: Mapping[str, Words | None], settings: Mapping[str, Words], used: tuple[str, ...],
    unknown: tuple[str, ...] = (), resolve: Callable[[str], Any] = lambda dotted: NOT_HERE,
) -> Run:
    """Return the run of settings over a recipe's, over those of the model converted from Hugging Face.

    ``resolve`` returns what a dotted name is in the checkout around a recipe, ``NOT_HERE`` without one. Raises
    InputError for an ``unknown`` setting from which memory or time follow.
    """
    words: dict[str, Words | None] = {**recipe, **settings}
    if (older := words.pop(_OLDER_PACKED, None)) and not (older[0].startswith("-") or is_off(_OLDER_PACKED, older)):
        words |= {_OFFLINE: ("true",), _PACKED: older}
    if words.get(_OFFLINE) == ("true",) and words.get(_PACKED):
        words |= dict.fromkeys(_LENGTHS, words[_PACKED])
    asked = refuse_attention(words, f"model.{_CONVERTED}", resolve)
    asked += tuple(key for key in (_OFFLINE, _PACKED, _OLDER_PACKED) if _PACKED in words and key not in asked)
    converted = _converted(words)
    base = _of_model(words, converted)
    graphs = words.get("model.cuda_graph_impl") not in (None, ("none",))
    whole = {key: said for key, said in {**base, **words}.items()
             if said is not None and (graphs or key not in _OF_GRAPHS) and key not in (*PACKING, _PACKED)}
    options = Options(bridge_words(whole, converted), shown=str, source=path)
    flex = whole.get("model.moe_token_dispatcher_type") != ("flex",) and "model.num_experts" in whole
    if _FLEX in whole and flex:
        options.warnings.append(f"{_FLEX} = {' '.join(whole[_FLEX])}: where the GPU has it, the recipe changes to it"
                                " when it starts; tokens are counted as sent by all-to-all; with"
                                " model.moe_token_dispatcher_type=flex it is counted")
    if any(words.get(setting) == ("true",) for setting in PACKING):
        options.warnings.append(_DOCUMENTS)
    run = with_own_layers(nemo.read(path, name, options, unknown), converted)
    mine = {*recipe, *settings}
    return Run("bridge", path, run.model, run.arguments,
               (*used, *(key for key in (*run.understood, "model.hf_model_id", PATTERN, *asked) if key in mine)),
               tuple(key for key in (*run.without_effect, *_OF_GRAPHS, _FLEX) if key in mine and (
                   graphs or key not in run.unknown)),
               tuple(key for key in run.unknown if key in mine), run.warnings, run.replica_batch)


def _tokenizer_of(configuration: Built) -> dict[str, Words | None]:
    """Return settings of a tokenizer without files, whose vocabulary is that of a model that states none."""
    tokenizer = configuration.fields.get("tokenizer")
    if not isinstance(tokenizer, Built) or tokenizer.fields.get("tokenizer_type") != "NullTokenizer":
        return {}
    size = tokenizer.fields.get("vocab_size")
    if not isinstance(size, int):
        return {}
    return {"tokenizer.tokenizer_type": ("NullTokenizer",), "tokenizer.vocab_size": (str(size),)}


def words_of(configuration: Built) -> Iterator[tuple[str, Words | None]]:
    """Yield settings by dotted key of a configuration; None where it says that there is none."""
    for section in SECTIONS:
        value = configuration.fields.get(section, UNKNOWN)
        if isinstance(value, Built):
            if section == "peft":
                yield "peft._target_", (value.name,)
            for key, inner in value.fields.items():
                whole = f"{section}.{key}"
                if not isinstance(inner, Unknown | Built | Function) and (
                        not whole.startswith(_LEFT_OUT) or whole.startswith(_KEPT)):
                    yield whole, words_from(inner)
                elif key in (_SPECS, _OLDER_SPECS) and isinstance(inner, Built) and isinstance(
                        size := inner.fields.get(_PACKED_SIZE), int):
                    yield f"{whole}.{_PACKED_SIZE}", words_from(size)
        elif isinstance(value, str):
            yield section, (value,)


def unknown_keys(configuration: Built) -> Iterator[str]:
    """Yield the sections and settings by dotted key to which a file assigns what only running it could tell."""
    for section in SECTIONS:
        value = configuration.fields.get(section)
        if isinstance(value, Unknown):
            yield section
        for key, inner in value.fields.items() if isinstance(value, Built) else ():
            if isinstance(inner, Unknown):
                yield f"{section}.{key}"


def _of_checkout(
    interpreter: Interpreter, dotted: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any],
) -> Any:
    """Return the results of Megatron-Bridge's functions; a precision is that of the checkout around the file."""
    above, _, name = dotted.rpartition(".")
    if name == _FLEX_CALL:
        return None
    if name == _PRECISION and arguments and isinstance(arguments[0], str):
        function = interpreter.resolve(f"{above}.{arguments[0].replace('-', '_')}")
        if isinstance(function, Function):
            return interpreter.call(function)
    return _outside(dotted, arguments, keywords)


def _refuse_kind(field: str, name: str) -> None:
    """Raise InputError for a model by the name of a kind that is not counted."""
    for pattern, noun in (*_KINDS, *PARTS):
        if pattern.search(name):
            raise InputError(field, name, f"must be a decoder of text that is counted: {noun} are not counted yet")


def _outside(dotted: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Return the results of Megatron-Bridge's functions: recipes, conversions, precisions, configurations."""
    name = dotted.rpartition(".")[2]
    if name == _PRECISION and arguments:
        if not isinstance(arguments[0], str):
            return arguments[0]
        name = arguments[0].replace("-", "_")
    known = built_outside(dotted, arguments, keywords)
    if known is not None:
        return known
    if name in wheel()["recipes"]:
        if arguments or keywords:
            raise InputError(_RECIPE, name, "must be called without arguments: those of recipes are not followed yet")
        return _nested(wheel()["recipes"][name])
    if name in wheel()["precisions"]:
        return Built("MixedPrecisionConfig", dict(wheel()["precisions"][name]))
    return UNKNOWN


def built_outside(dotted: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Make the object of a class or of a bridge from Hugging Face; None for any other function."""
    owner, _, name = dotted.rpartition(".")
    if dotted.endswith(("AutoBridge.from_hf_pretrained", "AutoBridge.from_hf_config")):
        return Built("AutoBridge", {"hf_model_id": arguments[0] if arguments else UNKNOWN})
    if name in _CONVERSIONS and arguments and isinstance(arguments[0], Built):
        return Built("provider", dict(arguments[0].fields), usual={**_USUAL, **_usual_of(arguments[0].fields)})
    if name == "default_peft_config" and arguments and arguments[0] in ("lora", "dora"):
        return Built({"lora": "LoRA", "dora": "DoRA"}[arguments[0]], dict(keywords))
    if name in _OPTIMIZERS:
        return Built("OptimizerConfig", {"optimizer": _OPTIMIZERS[name], "use_distributed_optimizer": True}), UNKNOWN
    if name[:1].isupper() and not owner.endswith("torch"):
        usual = {_CONVERTED: PROVIDERS[name]} if name in PROVIDERS else {}
        return Built(name, {**usual, **keywords}, arguments)
    return None


def _usual_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a model of the catalogue, before a recipe changes them; none of another model."""
    name = fields.get("hf_model_id")
    try:
        asked: dict[str, Words | None] = {f"model.{_CONVERTED}": words_from(name)} if isinstance(name, str) else {}
        words = _of_model(asked, _converted(asked))
    except InputError:
        return {}
    return {key.removeprefix("model."): _plain(" ".join(said)) for key, said in words.items() if said is not None}


def _nested(settings: Mapping[str, Any]) -> Built:
    whole = Built(CONTAINER)
    for key, value in settings.items():
        section, _, own = key.partition(".")
        if not own:
            whole.fields[section] = value
            continue
        inner = whole.fields.setdefault(section, Built(settings.get(f"{section}._target_", section),
                                                       usual=_USUAL if section == "model" else {}))
        if own != "_target_":
            inner.fields[own] = _plain(value)
    return whole


def _plain(value: Any) -> Any:
    """Return the value of Python that a word of the table stands for."""
    if value in ("true", "false"):
        return value == "true"
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 18 else value


def _configuration(
    interpreter: Interpreter, path: str, text: str, recipe: str | None, names: dict[str, Any],
) -> Built:
    """Return the configuration that a file makes, or the recipe of the wheel that is asked for."""
    scope = interpreter.module(text, names)
    if recipe is not None and recipe not in scope and recipe in wheel()["recipes"]:
        return _nested(wheel()["recipes"][recipe])
    made = interpreter.made(scope, CONTAINER, recipe, ("_config", "_recipe", "main"))
    if made is None:
        _refuse_kind(_RECIPE, recipe or "")
        rule = ("must make a ConfigContainer of Megatron-Bridge or a Trainer.Config of torchtitan: other Python files"
                " are not read yet")
        raise InputError("model", path, rule)
    return made


def _converted(words: Mapping[str, Words | None]) -> Model | None:
    """Return the model of the catalogue that a recipe converts from Hugging Face. Raises InputError for another."""
    named = words.get(f"model.{_CONVERTED}")
    if not named:
        return None
    _refuse_kind(f"model.{_CONVERTED}", named[0])
    try:
        model = Model.named(named[0])
    except InputError as error:
        rule = "must be a model of the catalogue: others are not read from recipes yet"
        raise InputError(f"model.{_CONVERTED}", named[0], rule, error.nearest) from None
    if _bridge_of(model) is None:
        rule = f"must be of a family whose bridge is read: {', '.join(_FAMILIES)}"
        raise InputError(f"model.{_CONVERTED}", named[0], rule)
    return model


def _of_model(words: Mapping[str, Words | None], model: Model | None) -> dict[str, Words | None]:
    """Return settings of the model that a recipe converts from Hugging Face, as its bridge makes them."""
    bridge = None if model is None else _bridge_of(model)
    if model is None or bridge is None:
        return {}
    length = words.get("model.seq_length") or words.get("dataset.seq_length") or (str(model.max_seq_length),)
    size = int(length[0]) if length[0].isdecimal() and len(length[0]) < 10 else model.max_seq_length
    if model.kv_lora_rank and model.rope_scaling is not None:  # no tensor follows from the ramp of YaRN
        model = model.model_copy(update={"rope_scaling": model.rope_scaling.model_copy(update=_RAMP)})
    flags = [*model_flags(as_flags_say(model), size), *(expert_flags(model) if model.num_experts else ())]
    stated = {flag[0] for flag in flags}
    base: dict[str, Words | None] = {
        "model.add_bias_linear": ("false" if "disable-bias-linear" in stated else "true",),
        "model.share_embeddings_and_output_weights": (
            "false" if "untie-embeddings-and-output-weights" in stated else "true",),
        "model.vocab_size": (str(model.vocab_size),), "model.attention_dropout": ("0.0",),
        "model.hidden_dropout": ("0.0",), "model.make_vocab_size_divisible_by": ("1",),
    }
    for flag in flags:
        if flag[0] not in ("disable-bias-linear", "untie-embeddings-and-output-weights", "group-query-attention",
                           "max-position-embeddings"):
            section, key, value = entry(flag)
            base[f"{section}.{key}"] = (value.strip('"'),)
    own = {**wheel()["bridges"].get(bridge, {}), **_OF_CLASSES.get(bridge, {})}
    return {**base, **{f"model.{key}": words_from(value) for key, value in own.items()}}


def _bridge_of(model: Model) -> str | None:
    """Return the bridge that converts a model of the catalogue; None for a family whose bridge has no row."""
    family = next((start for start in _FAMILIES if model.name.startswith(start)), None)
    return None if family is None else _FAMILIES[family][bool(model.num_experts)]
