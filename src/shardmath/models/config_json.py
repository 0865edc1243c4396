"""Reader of a Hugging Face ``config.json``: the file, the family that wrote it, and the model that it means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from warnings import warn

from pydantic import ValidationError

from shardmath.errors import ABSENT, InputError, InputWarning
from shardmath.files.reading import json_object, read_text
from shardmath.models.dense_families import DENSE, Family
from shardmath.models.expert_families import EXPERTS
from shardmath.models.grouped_expert_families import GROUPED_EXPERTS
from shardmath.models.model import Model
from shardmath.models.remarks import remarks
from shardmath.models.unread import UNREAD

__all__ = ["FAMILIES", "read_model"]

FAMILIES: dict[str, type[Family]] = {**DENSE, **EXPERTS, **GROUPED_EXPERTS}
"""The families that can be read, by ``model_type``."""

_WITH_TEXT = {"llama4": "llama4_text", "qwen3_vl_moe": "qwen3_moe"}
"""Models of text and images whose ``text_config`` is read, with the family of the latter."""

_LARGEST_FILE = 2**24
"""Bytes. A config.json has a few thousand; more is a weights file that was passed by mistake."""


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read the model that the ``config.json`` at ``path`` describes.

    It is named after its folder, or after the file if that has a name of its own. Raises ``InputError`` for a
    file that cannot be read, and for a model that the ledger cannot hold; its field is then the key of the file. Warns
    with ``InputWarning`` of every key that may matter and changes no count.
    """
    config = _json_object(path)
    file = Path(path)
    own = file.stem if file.stem.lower() != "config" else file.absolute().parent.name
    name = own.encode(errors="replace").decode() or "config"
    family, keys, prefix = _family(config)
    try:
        read = family.read(keys)
    except ValidationError as error:
        cause = InputError.from_validation(error.errors(include_url=False))
        raise InputError(prefix + cause.field, cause.value, cause.rule, cause.nearest) from None
    try:
        model = Model(name=name, source=f"{name} ({file.name})", **read.fields())
    except InputError as error:
        raise _under_its_key(error, family, keys, prefix) from None
    known = {key for field in family.model_fields for key in family.keys(field)}
    model_type = next(name for name, member in FAMILIES.items() if member is family)
    for remark in (*remarks(model_type, keys, config, known), *read.uncounted()):
        warn(f"{file.name}: {remark}", InputWarning, stacklevel=2)
    return model


def _family(config: dict[str, Any]) -> tuple[type[Family], dict[str, Any], str]:
    """The family, the object that holds its keys, and what stands before these keys in an error."""
    model_type = config.get("model_type", ABSENT)
    supported = ", ".join(sorted([*FAMILIES, *_WITH_TEXT]))
    if isinstance(model_type, str) and model_type in _WITH_TEXT:
        inner, family = config.get("text_config", ABSENT), _WITH_TEXT[model_type]
        if not isinstance(inner, dict):
            raise InputError("text_config", inner, "must be the object that describes the language model")
        if inner.get("model_type", family) not in (family, model_type, f"{model_type}_text"):
            raise InputError("text_config.model_type", inner["model_type"], f"must be {family}", family)
        return FAMILIES[family], inner, "text_config."
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise InputError("model_type", model_type, _missing(model_type) or f"must be one of {supported}")
    if "text_config" in config:
        rule = "must not be there: pass the config.json of the language model alone"
        raise InputError("text_config", config["text_config"], rule)
    return FAMILIES[model_type], config, ""


def _missing(model_type: object) -> str:
    """Return how near a family that is not read is to one that is; nothing for an unknown one."""
    missing = UNREAD.get(model_type) if isinstance(model_type, str) else None
    if missing is None:
        return ""
    return f"must be a family that is read: it is {missing.nearest} with {missing.component}, which is not counted yet"


def _under_its_key(error: InputError, family: type[Family], config: dict[str, Any], prefix: str) -> InputError:
    """The error of a field of ``Model`` as one of the key that the file gives it under, with the file's value."""
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
    return json_object("model", text, content, "a JSON object")
