"""Settings of the wheel of Megatron-Bridge: recipes, precisions by name, and models that it converts from Hugging Face.

``tables/bridge_recipes.toml`` has it as data; ``python -m validation.bridge_recipes`` derives it from the wheel.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from shardmath.formats.scripts.python_values import Name
from shardmath.formats.table import FOLDER, Words

#: Name of the table, and what stands in a recipe for a usual setting that it has not.
RECIPES, ABSENT = "bridge_recipes", "absent"
_GRADIENTS, _DISTRIBUTED = "grad_reduce_in_fp32", "use_distributed_optimizer"


@cache
def wheel() -> Mapping[str, Any]:
    """Return ``recipes``, ``precisions`` and ``bridges`` with their settings by key, and the ``release``."""
    data: dict[str, Any] = tomllib.loads((FOLDER / f"{RECIPES}.toml").read_text(encoding="utf-8"))
    data["recipes"] = {name: {**data["usual"], **own} for name, own in data["recipes"].items()}
    for part in ("recipes", "precisions", "bridges"):
        data[part] = {name: {key: None if value == "null" else value for key, value in row.items() if value != ABSENT}
                      for name, row in data[part].items()}
    return data


def in_force(words: Mapping[str, Words]) -> dict[str, Words]:
    """Return settings as Megatron-Bridge takes them when it starts.

    A precision by name is its settings. Its precision of gradients wins over that of ``ddp``, and the distributed
    optimizer is on where either section says so.
    """
    named = " ".join(words.get("mixed_precision", ())).replace("-", "_")
    fields = {f"mixed_precision.{key}": words_from(value) or () for key, value in
              wheel()["precisions"].get(named, {}).items()}
    settings = {**fields, **words}
    if any(key.startswith("mixed_precision") for key in settings):  # its types win over those of the model
        settings = {key: value for key, value in settings.items() if key not in ("model.bf16", "model.fp16")}
    stated = settings.get(f"mixed_precision.{_GRADIENTS}")
    if stated is None and any(key.startswith("mixed_precision.") for key in settings):
        stated = ("true",)  # of MixedPrecisionConfig
    if stated is not None:
        settings[f"ddp.{_GRADIENTS}"] = settings[f"mixed_precision.{_GRADIENTS}"] = stated
    keys = [f"{section}.{_DISTRIBUTED}" for section in ("ddp", "optimizer")]
    if any(settings.get(key) == ("true",) for key in keys):
        settings |= {key: ("true",) for key in keys if key in settings}
    return settings


def words_from(value: Any) -> Words | None:
    """Return the words of a value of Python; None for none."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        if value and all(isinstance(stage, list) for stage in value):  # stages of a pipeline, each a list of layers
            letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
            return ("|".join("".join(letters.get(str(layer), "?") for layer in stage) for stage in value),)
        return tuple(word for item in value for word in words_from(item) or ())
    if isinstance(value, bool):
        return ("true" if value else "false",)
    return (value.dotted.rpartition(".")[2],) if isinstance(value, Name) else tuple(str(value).split())


