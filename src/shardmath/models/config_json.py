"""Reader of a Hugging Face ``config.json``: the file, the family that wrote it, and the model that it means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from warnings import warn

from shardmath.errors import ABSENT, InputError, InputWarning
from shardmath.files.reading import json_object, read_text
from shardmath.models.class_kernels import CLASS_KERNELS
from shardmath.models.dense_families import DENSE, Family
from shardmath.models.early_families import EARLY
from shardmath.models.expert_families import EXPERTS
from shardmath.models.further_expert_families import FURTHER_EXPERTS
from shardmath.models.gated_families import GATED
from shardmath.models.grouped_expert_families import GROUPED_EXPERTS
from shardmath.models.latent_families import LATENT
from shardmath.models.layer_norm_families import LAYER_NORM
from shardmath.models.model import Model
from shardmath.models.remarks import remarks
from shardmath.models.two_width_families import TWO_WIDTHS
from shardmath.models.unread import UNREAD

__all__ = ["FAMILIES", "TEXT_NAMES", "WITH_TEXT", "family_of", "model_of", "read_model"]

FAMILIES: dict[str, type[Family]] = {**DENSE, **EARLY, **GATED, **LATENT, **LAYER_NORM, **EXPERTS,
                                    **GROUPED_EXPERTS, **FURTHER_EXPERTS, **TWO_WIDTHS}
"""The families that can be read, by ``model_type``."""

WITH_TEXT: dict[str, str] = {
    "gemma3": "gemma3_text", "gemma4": "gemma4_text", "gemma4_unified": "gemma4_unified_text", "internvl": "qwen2",
    "llama4": "llama4_text", "llava": "llama", "mistral3": "mistral",
    "qwen2_5_vl": "qwen2", "qwen2_vl": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_moe": "qwen3_moe",
}
"""Models of text and images whose ``text_config`` is read, with the family of one that names none."""

TEXT_NAMES = {
    "qwen2_5_vl_text": "qwen2", "qwen2_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe",
}
"""Families of language models under the names that they have inside of models of text and images."""

_LARGEST_FILE = 2**24
"""Bytes. A config.json has a few thousand; more is a weights file that was passed by mistake."""


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read the model that the ``config.json`` at ``path`` describes.

    Its name is that of its folder, or of the file if that has a name of its own. Raises ``InputError`` for a
    file that cannot be read, and for a model that the ledger cannot hold; its field is then the key of the file. Warns
    with ``InputWarning`` of every key that may matter and changes no count.
    """
    config = _json_object(path)
    file = Path(path)
    own = file.stem if file.stem.lower() != "config" else file.absolute().parent.name
    name = own.encode(errors="replace").decode() or "config"
    model, said = model_of(config, name, f"{name} ({file.name})")
    for remark in said:
        warn(f"{file.name}: {remark}", InputWarning, stacklevel=2)
    return model


def model_of(config: dict[str, Any], name: str, source: str) -> tuple[Model, list[str]]:
    """Return the model that the keys of a ``config.json`` describe, and remarks on keys that change no count.

    Raises InputError as ``read_model``, which the page does in the same words: this function is translated for it.
    """
    model_type, keys, prefix = family_of(config)
    family = FAMILIES[model_type]
    try:
        read = family.read(keys)
    except InputError as error:
        raise InputError(prefix + error.field, error.value, error.rule, error.nearest) from None
    try:
        fields = {"model_type": model_type if model_type in CLASS_KERNELS else "", **read.fields()}
        model = Model(name=name, source=source, **fields)
    except InputError as error:
        raise _under_its_key(error, family, keys, prefix) from None
    known = {key for field in family.model_fields for key in family.keys(field)}
    return model, [*remarks(model_type, keys, config, known, model.attention_window), *read.uncounted()]


def family_of(config: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Return the name of the family, the object that holds its keys, and what stands before these keys in an error.

    Raises InputError for a family that is not read.
    """
    model_type = config.get("model_type", ABSENT)
    if isinstance(model_type, str) and model_type in WITH_TEXT:
        return _text_family(model_type, config)
    if model_type is ABSENT and "text_config" not in config:
        raise InputError("model_type", ABSENT, "must be there, as in every config.json of Transformers", "llama")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        supported = ", ".join(sorted([*FAMILIES, *WITH_TEXT]))
        raise InputError("model_type", model_type, _missing(model_type) or f"must be one of {supported}")
    if "text_config" in config:
        rule = "must not be there: pass the config.json of the language model alone"
        raise InputError("text_config", config["text_config"], rule)
    return model_type, config, ""


def _text_family(model_type: str, config: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Get the same of the language model inside a model of text and images, whose keys older files have at the top."""
    inner, usual = config.get("text_config", ABSENT), WITH_TEXT[model_type]
    if inner is ABSENT and "hidden_size" in config:
        return usual, {**config, "model_type": usual}, ""
    if not isinstance(inner, dict):
        raise InputError("text_config", inner, "must be the object that describes the language model")
    stated = inner.get("model_type", usual)
    family = usual if stated == model_type else TEXT_NAMES.get(stated, stated) if isinstance(stated, str) else stated
    if not isinstance(family, str) or family not in FAMILIES:
        rule = _missing(family) or f"must be a family that is read, such as {usual}"
        raise InputError("text_config.model_type", stated, rule, usual)
    shared = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    return family, {**shared, **inner}, "text_config."


def _missing(model_type: object) -> str:
    """Return how near a file of a family that is not read is to one that is; nothing for an unknown family."""
    missing = UNREAD.get(model_type) if isinstance(model_type, str) else None
    if missing is None:
        return ""
    return f"must be a family that is read: it is {missing.nearest} with {missing.component}, which is not counted yet"


def _under_its_key(error: InputError, family: type[Family], config: dict[str, Any], prefix: str) -> InputError:
    """Get the error of a field of ``Model`` as one of the key that the file gives it under, with the file's value."""
    names = family.keys(error.field)
    key = next((name for name in names if name in config), names[0])
    stated = config.get(key)
    if key == error.field or stated is None or stated == error.value:
        return InputError(prefix + key, error.value, error.rule, error.nearest)
    return InputError(prefix + key, stated, f"must give another {error.field} than {error.value}: it {error.rule}")


def _json_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the JSON object in the file; ``InputError`` for everything else that a path can lead to."""
    text = os.fspath(path)
    if os.path.isdir(text):
        inside = os.path.join(text, "config.json")
        if os.path.isfile(inside):
            raise InputError("model", text, "must be the path of a config.json, not of a folder", inside)
    content = read_text("model", text, "a config.json", _LARGEST_FILE)
    if not text.lower().endswith(".json") and content.lstrip()[:1] != "{":
        rule = "must be a name of `shardmath models`, a config.json, or a file that a program is launched with"
        raise InputError("model", text, rule)
    return json_object("model", text, content, "a JSON object")
