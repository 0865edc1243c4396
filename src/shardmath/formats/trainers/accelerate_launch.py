"""Settings that ``accelerate launch`` is given, in a file and by flags of its own, as those of the trainer.

Flags as in ``accelerate/commands/launch.py`` of release 1.15. A flag is a key of the file, mostly one of a table in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from shardmath.errors import InputError
from shardmath.files import nested
from shardmath.formats.described import beside, of_files, words_of
from shardmath.formats.options import Options
from shardmath.formats.scripts.launch import value_of
from shardmath.formats.table import Words, row_of, table, translated

MISSING = "must be the path of an existing file, from the script's folder, one above it or from here"
#: Tables of the file by the beginning of a flag.
_TABLES = {"fsdp_": "fsdp_config", "parallelism_config_": "parallelism_config", "dynamo_": "dynamo_config"}
#: Flags that lie in the table of DeepSpeed.
_OF_DEEPSPEED = ("zero_stage", "deepspeed_config_file", "offload_optimizer_device", "offload_param_device",
                 "gradient_accumulation_steps", "gradient_clipping", "zero3_init_flag", "zero3_save_16bit_model",
                 "deepspeed_hostfile", "deepspeed_multinode_launcher", "deepspeed_moe_layer_cls_names")
#: Switches, and the settings of the file that they are.
_SWITCHES: Mapping[str, Mapping[str, Words]] = {
    "use_deepspeed": {"distributed_type": ("DEEPSPEED",)}, "use_fsdp": {"distributed_type": ("FSDP",)},
    "multi_gpu": {"distributed_type": ("MULTI_GPU",)}, "use_megatron_lm": {"megatron_lm_config": ("true",)},
}
_FILE, _STAGE = "deepspeed_config.deepspeed_config_file", "deepspeed_config.zero_stage"
#: ZeRO stage of ``--use_deepspeed`` alone.
_USUAL_STAGE = "2"


def of_launcher(path: str, launched: Mapping[str, Words], notes: list[str]) -> dict[str, Words]:
    """Return settings of the trainer that the launcher's file and flags say, which win over it; warnings to ``notes``.

    Raises InputError for a file that is missing, and for settings that are refused.
    """
    named = value_of(launched, ("config_file", "config-file"))
    source, words = path, {}
    if named is not None:
        there = beside(path, named)
        if there is None:
            raise InputError("config_file", named, MISSING)
        suffix = os.path.splitext(there)[1].lower()
        source, words = there, words_of(there, suffix if suffix in nested.KINDS else ".yaml", notes)
    format, flags = table("accelerate"), _of_flags(launched)
    stated = Options({**words, **flags}, shown=str, source=source)
    files = of_files(format, stated, path)
    sorted_out = translated(format, stated)
    for warning in sorted_out.options.warnings:
        if warning not in notes:
            notes.append(warning)
    said = sorted_out.options.words
    own = {name: words for name, words in said.items() if name not in format.defaults}
    sharded = {name: words for name, words in said.items() if name.startswith("fsdp_config")}
    return {**files, **own, **(sharded if "fsdp" in own else {})}


def _of_flags(launched: Mapping[str, Words]) -> dict[str, Words]:
    """Return keys of the file for flags that are Accelerate's; others are those of a launcher around it."""
    format = table("accelerate")
    keys: dict[str, Words] = {}
    for flag, words in launched.items():
        name = flag.replace("-", "_")
        folder = "deepspeed_config" if name in _OF_DEEPSPEED else next(
            (inner for start, inner in _TABLES.items() if name.startswith(start)), "")
        key, said = f"{folder}.{name}" if folder else name, words[:1] or ("true",)
        if name in _SWITCHES:
            keys |= _SWITCHES[name] if said[0].lower() == "true" else {}
        elif name not in ("num_processes", "num_machines") and (format.is_setting(key, said) or any(
                row_of(key, rows) for rows in (format.refused, format.uncounted))):
            keys[key] = said
    if keys.get("distributed_type") != ("DEEPSPEED",):
        return {key: words for key, words in keys.items() if not key.startswith("deepspeed_config.")}
    return keys if _FILE in keys or _STAGE in keys else {**keys, _STAGE: (_USUAL_STAGE,)}


def launcher_of(before: Sequence[str]) -> Sequence[str]:
    """Return the words of the innermost launcher: ``--`` stands between one that starts another and this."""
    parts: list[list[str]] = [[]]
    for word in before:
        parts = [*parts, []] if word == "--" else [*parts[:-1], [*parts[-1], word]]
    return next((part for part in reversed(parts) if part), [])
