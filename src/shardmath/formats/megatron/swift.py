"""Settings of ms-swift with Megatron-Core (Megatron-SWIFT) as a run: flags of Megatron-LM for a model of Hugging Face.

``swift/megatron/arguments/megatron_args.py`` and ``swift/megatron/model/utils.py`` of release 4.6.0; mcore-bridge 1.6.5
makes the model of a ``config.json``.
"""

from __future__ import annotations

from typing import Any

from shardmath.formats.megatron.reading import arguments_of
from shardmath.formats.options import Options
from shardmath.formats.trainers.reading import model_of
from shardmath.models.model import Model

_LENGTH, _PREDICTIONS = "seq-length", "mtp-num-layers"
_PADDING_FREE = "padding_free"
#: Sets of ``target_modules`` that are counted, and the choices ``adapters`` that they are.
_TARGETS = {("all-linear",): "all_linear", ("linear_fc1", "linear_fc2", "linear_proj", "linear_qkv"): "all_linear",
            ("linear_proj", "linear_qkv"): "attention", ("linear_qkv",): "qkv"}


def described(options: Options, name: str, num_gpus: int | None) -> tuple[Model, dict[str, Any], int]:
    """Return the model, the arguments of ``explain`` and the sequences of a replica and step. Raises InputError."""
    known = model_of(options)
    model = Model(**{**known.model_dump(), "num_mtp_layers": options.size(_PREDICTIONS, 0)})
    if options.number(_LENGTH) is None:
        rule = f"must be given: the longest sequence, with --set {options.shown(_LENGTH)}=TOKENS"
        raise options.error(_LENGTH, rule)
    options.warnings.append(_packed(options))
    if model.expert_scores == "sigmoid":  # as mcore-bridge has it for every model with such scores
        options.words["moe-router-enable-expert-bias"] = ("true",)
    arguments = arguments_of(options, model, num_gpus)
    adapted = _adapters_of(options, model)
    arguments["kernels"] |= adapted.pop("kernels", {})
    arguments |= adapted
    return model, arguments, arguments["micro_batch_size"]


def _adapters_of(options: Options, model: Model) -> dict[str, Any]:
    """Return arguments of ``explain`` for adapters, none where all weights are trained. Raises InputError.

    ``LoraParallelLinear`` (mcore_bridge/tuners/lora.py) gives one to every projection, joined as Megatron-Core's are,
    and where experts are one product, one to every expert.
    """
    if not options.is_on("use-peft"):
        return {}
    words = options.all("target-modules")
    targets = tuple(sorted({part for word in words for part in word.strip("[]'\" ").replace(",", " ").split()}))
    if targets not in _TARGETS:
        known = ", or ".join(" ".join(names) for names in _TARGETS)
        raise options.error("target-modules", f"must be {known}: others are not counted yet", "all-linear")
    if options.real("lora-dropout", 0.0):
        again = options.word("recompute-granularity", "") == "full"
        options.warnings.append(f"{options.shown('lora-dropout')} is not counted yet: dropout before adapters keeps its"
                                f" mask and output{', here of the one layer that is computed again' * again}")
    kernels = {"adapters": _TARGETS[targets], "adapter_parts": "joined"}
    if model.num_experts and kernels["adapters"] == "all_linear":
        kernels["expert_adapters"] = "each"
    return {"lora_rank": options.size("lora-rank", 8), "kernels": kernels}


def _packed(options: Options) -> str:
    """Return a warning on sequences: they are laid behind one another unless that is switched off."""
    if options.is_on("packing"):
        return "packed documents are counted as full sequences"
    if _PADDING_FREE in options and not options.is_on(_PADDING_FREE):
        return f"{options.shown(_PADDING_FREE)} = false: the mask of padded sequences is not counted yet"
    return f"{options.shown(_PADDING_FREE)}: sequences without padding are counted as long as they may be"
