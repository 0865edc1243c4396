"""A run as a recipe of Megatron-Bridge: a Python function that makes its configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardmath.formats.nemo.writing import RELEASE, sections_of
from shardmath.formats.run import REPLACE, notes, title

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation

_HEAD = """
{imports}
from megatron.bridge.models.{module} import {provider}
from megatron.bridge.recipes.common import _pretrain_common
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.mixed_precision import bf16_mixed, fp16_mixed


def pretrain_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = {provider}()
    cfg.mixed_precision = {precision}()
    cfg.dataset.seq_length = {sequence}
    cfg.tokenizer.tokenizer_model = "YOUR_TOKENIZER"  # {replace} by yours
"""


def recipe(explanation: Explanation, layout: Sequence[int] | None) -> str:
    """Return the text of the file."""
    sections = sections_of(explanation, layout)
    latent = bool(explanation.model.kv_lora_rank)
    for switch in ("overlap_grad_reduce", "overlap_param_gather"):  # on in the recipe that it starts from
        sections["ddp"].setdefault(switch, "false")
    if not explanation.inputs["distributed_optimizer"]:
        sections["ddp"]["use_distributed_optimizer"] = sections["optimizer"]["use_distributed_optimizer"] = "false"
    half = "fp16" in sections["mixed_precision"]
    for key in ("bf16", "fp16"):
        sections["mixed_precision"].pop(key, None)
    named = [function for keys in sections.values() for value in keys.values() for function in _named(value)]
    others = sorted({function.rpartition(".")[0] for function in named if not function.startswith("torch.")})
    imports = "\n".join(f"import {module}" for module in (*others, "torch"))
    head = _HEAD.format(imports=imports, module="mla_provider" if latent else "gpt_provider",
                        provider="MLAModelProvider" if latent else "GPTModelProvider",
                        precision="fp16_mixed" if half else "bf16_mixed",
                        sequence=explanation.inputs["seq_length"], replace=REPLACE)
    lines = [f"    cfg.{section}.{key} = {_python(value)}" for section, keys in sections.items()
             for key, value in keys.items()]
    return "\n".join((title(explanation), f"# For Megatron-Bridge {RELEASE}. Lines with {REPLACE} are placeholders.",
                      *notes(explanation), head.rstrip("\n"), *lines, "    return cfg", ""))


def _named(value: str) -> list[str]:
    """Return the function that a value names in YAML, if it is one."""
    return re.findall(r"^\{_target_: ([a-z_.0-9A-Z]+), _call_: false\}", value)


def _python(value: str) -> str:
    """Return the expression of Python for a value as YAML writes it, with its comment."""
    value, hash_sign, comment = value.partition("  #")
    behind = f"  #{comment}" if hash_sign else ""
    if named := _named(value):
        return named[0] + behind
    plain = {"true": "True", "false": "False", "null": "None"}.get(value)
    if plain is not None or re.fullmatch(r"-?[0-9][0-9_.]*(e-?[0-9]+)?", value):
        return (plain or value) + behind
    if value.startswith("[") and value.endswith("]"):
        return repr([part.strip() for part in value[1:-1].split(",")]) + behind
    return (value if value.startswith('"') else f'"{value}"') + behind
