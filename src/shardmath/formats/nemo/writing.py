"""A run as a configuration of Megatron-Bridge (YAML): the flags of Megatron-LM under the keys of its sections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardmath.formats.megatron.layout import layer_pattern
from shardmath.formats.megatron.writing import Flag, groups_of
from shardmath.formats.nemo.reading import FLAG_OF, OPPOSITE, TORCH_TYPES
from shardmath.formats.run import REPLACE, notes, title

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation

#: The release whose classes have all keys that are written.
RELEASE = "0.3.1"
_STARTED = (
    f"# For Megatron-Bridge {RELEASE}: settings to put over those of a recipe, whose data and tokenizer stay.",
    f"# Lines with {REPLACE} are placeholders.",
)
_SECTIONS = ("model", "train", "ddp", "optimizer", "mixed_precision")
_SECTION_OF = {
    "micro-batch-size": "train", "global-batch-size": "train", "use-distributed-optimizer": "ddp",
    "num-distributed-optimizer-instances": "ddp", "overlap-grad-reduce": "ddp", "overlap-param-gather": "ddp",
    "optimizer": "optimizer", "sgd-momentum": "optimizer", "use-precision-aware-optimizer": "optimizer",
    "exp-avg-dtype": "optimizer", "exp-avg-sq-dtype": "optimizer", "main-params-dtype": "optimizer",
    "optimizer-cpu-offload": "optimizer", "optimizer-offload-fraction": "optimizer", "bf16": "mixed_precision",
    "fp16": "mixed_precision", "fp8-format": "mixed_precision", "fp8-recipe": "mixed_precision",
    "fp8-param-gather": "mixed_precision", "fp8-amax-history-len": "mixed_precision",
    "fp4-format": "mixed_precision", "fp4-recipe": "mixed_precision",
}
#: Flags that Megatron-Bridge has no key for: they follow from others, as positions do from the sequence length.
_IMPLIED = ("max-position-embeddings", "group-query-attention", "grad-reduce-in-bf16",
            "accumulate-allreduce-grads-in-fp32", "tokenizer-type", "vocab-size", "squared-relu", "quick-geglu")
#: Functions of PyTorch and Megatron-Core by what they are called in the ledger; that of NeMo where none is set is GELU.
_ACTIVATIONS = {"swiglu": "torch.nn.functional.silu", "relu2": "megatron.core.activations.squared_relu",
                "swiglu_clamped": "megatron.core.fusions.fused_bias_geglu.quick_gelu"}


def configuration(explanation: Explanation, layout: Sequence[int] | None) -> str:
    """Return the text of the file."""
    return "\n".join((title(explanation), *_STARTED, *notes(explanation), "")) + "".join(
        f"\n{section}:\n" + "".join(f"  {key}: {value}\n" for key, value in keys.items())
        for section, keys in sections_of(explanation, layout).items() if keys
    )


def sections_of(explanation: Explanation, layout: Sequence[int] | None) -> dict[str, dict[str, str]]:
    """Return values by section and key, as YAML writes them."""
    flags = [flag for group in groups_of(explanation, layout) for flag in group]
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for flag in flags:
        if flag[0] not in _IMPLIED and flag[0] not in OPPOSITE.values():
            section, key, value = entry(flag)
            sections[section][key] = value
    named = {flag[0] for flag in flags}
    if explanation.choices["optimizer"] == "precision_aware":  # another recipe is the default, and changes its states
        sections["mixed_precision"].setdefault("fp8_recipe", "delayed")
    for key, opposite in OPPOSITE.items():
        section, _, own = key.partition(".")
        if own != "bias":
            sections.setdefault(section, {})[own] = "false" if opposite in named else "true"
    if function := _ACTIVATIONS.get(explanation.model.mlp):
        sections["model"]["activation_func"] = f"{{_target_: {function}, _call_: false}}"
    if ("quick-geglu",) in flags:
        sections["model"]["gated_linear_unit"] = "true"
    sections["model"]["vocab_size"] = str(explanation.model.vocab_size)
    sections["model"].setdefault("cross_entropy_loss_fusion", "false")
    if explanation.model.kv_lora_rank:
        sections["model"].setdefault("q_lora_rank", "null")
    if "cpu_offloading_num_layers" in sections["model"]:
        sections["model"]["cpu_offloading"] = "true"
    sections["train"]["train_iters"] = f"1000  # {REPLACE} by your iterations"
    sections["optimizer"]["lr"] = f"1.0e-4  # {REPLACE} by your learning rate"
    sections["optimizer"]["min_lr"] = "1.0e-5"
    whole = "true" if explanation.inputs["gradient_bytes"] == 4 else "false"
    sections["ddp"]["grad_reduce_in_fp32"] = sections["mixed_precision"]["grad_reduce_in_fp32"] = whole
    return sections


def entry(flag: Flag) -> tuple[str, str, str]:
    """Section, key and value of a flag."""
    name, words = flag[0], flag[1:]
    section = _SECTION_OF.get(name, "model")
    key = next((key.partition(".")[2] for key, other in FLAG_OF.items()
                if other == name and key.partition(".")[0] == section and key not in _OF_NEMO), name.replace("-", "_"))
    if not words:
        return section, key, "true"
    if name == "window-size":
        return section, key, f"[{words[0].replace(',', ', ')}]"
    if name in ("recompute-modules", "offload-modules"):
        return section, key, f"[{', '.join(words)}]"
    if name == "moe-layer-freq":
        return section, key, f"[{', '.join(str(int(has)) for has in layer_pattern(words[0]))}]"
    if name.endswith("-dtype") and section == "optimizer":
        kind = next(kind for kind, word in TORCH_TYPES.items() if word == words[0])
        return section, key, f"{{_target_: torch.{kind}, _call_: false}}"
    if re.fullmatch(r"[0-9]+e-?[0-9]+", words[0]):
        return section, key, words[0].replace("e", ".0e")  # without a point it is a text in YAML
    return section, key, f'"{words[0]}"' if any(sign in words[0] for sign in "[]|*,") else words[0]


#: Keys of NeMo for what Megatron-Bridge calls otherwise.
_OF_NEMO = ("model.encoder_seq_length", "model.data.seq_length", "model.rotary_percentage",
            "model.activations_checkpoint_granularity",
            "model.activations_checkpoint_method", "model.activations_checkpoint_num_layers", "model.fp8_params")
