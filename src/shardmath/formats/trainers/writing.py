"""A run as files of Hugging Face's trainers: TRL's settings (YAML), Accelerate's (YAML) and DeepSpeed's (JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardmath.compiler.evaluators import with_needs
from shardmath.errors import InputError
from shardmath.formats.run import REPLACE, notes, title
from shardmath.formats.trainers.adapters import ENDS, TARGETS
from shardmath.formats.trainers.reading import LIGER, OPTIMIZERS
from shardmath.formats.trainers.sharding import OFFLOADED, SIZES
from shardmath.generated.definitions import IMPLEMENTATIONS

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation

#: Words that YAML would read as something else.
_TRUTHS = ("no", "yes", "on", "off")
#: Releases whose classes have all keys that are written.
TRL, ACCELERATE = "1.16", "1.15"
#: Choices of FSDP2 that Accelerate makes.
_UNITS = ("units", "reshard")


def trl(explanation: Explanation, layout: Sequence[int] | None) -> str:
    """Return settings for ``trl sft --config``, with those of FSDP or DeepSpeed."""
    settings = dict(_settings(explanation))
    if explanation.choices["data_parallel"] == "fsdp":
        offload = {"cpu_offload": True} if explanation.choices["zero_offload"] != "none" else {}
        settings |= {"fsdp": True,
                     "fsdp_config": {"version": 2, "reshard_after_forward": _resharded(explanation), **offload}}
    if explanation.choices["data_parallel"] == "deepspeed":
        settings["deepspeed"] = _zero(explanation)
    gpus = explanation.inputs["num_gpus"]
    head = (title(explanation), f"# For TRL {TRL}: trl sft --config FILE --num_processes {gpus}",
            f"# Lines with {REPLACE} are placeholders.", *notes(explanation), "")
    return "\n".join(head) + "\n".join(_yaml(settings)) + (
        f"\nlearning_rate: 2.0e-5  # {REPLACE} by yours\ndataset_name: trl-lib/Capybara  # {REPLACE} by your data\n")


def accelerate(explanation: Explanation, layout: Sequence[int] | None) -> str:
    """Accelerate's file; settings of the script that it starts are in its head.

    Raises InputError for a second bucket of DeepSpeed, which no setting of it asks for, and for replicas without FSDP.
    """
    if _stage(explanation) in (1, 2) and explanation.inputs["overlap_comm"]:
        rule = "must be deepspeed with overlap_comm = 1, which Accelerate's file cannot say; or give --no-overlap-comm"
        raise InputError("write", "accelerate", rule, "deepspeed")
    inputs, kind = explanation.inputs, explanation.choices["data_parallel"]
    if inputs["data_parallel_replicas"] > 1 and kind != "fsdp":
        raise InputError("write", "accelerate", "must be of a run with FSDP, whose mesh says data_parallel_replicas")
    nodes = -(-inputs["num_gpus"] // inputs["node_size"])
    settings: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": {"fsdp": "FSDP", "deepspeed": "DEEPSPEED"}.get(kind, "MULTI_GPU"),
        "mixed_precision": "bf16" if explanation.choices["precision"] in ("mixed", "autocast") else "no",
        "num_machines": nodes, "num_processes": inputs["num_gpus"],
    }
    if kind == "fsdp":
        settings["fsdp_config"] = {
            "fsdp_version": 2, "fsdp_reshard_after_forward": _resharded(explanation),
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            **({"fsdp_offload_params": True} if explanation.choices["zero_offload"] != "none" else {}),
        }
    if (replicas := inputs["data_parallel_replicas"]) > 1:
        settings["parallelism_config"] = {f"parallelism_config_dp_{name}_size": size for name, size in (
            ("replicate", replicas), ("shard", inputs["num_gpus"] // replicas))}
    if kind == "deepspeed":
        zero = _zero(explanation)["zero_optimization"]
        settings["deepspeed_config"] = {"zero_stage": zero["stage"], **{
            f"{part}_device": zero[part]["device"] for part in ("offload_optimizer", "offload_param") if part in zero}}
    beside = " ".join(f"--{key} {value}" for key, value in settings_beside(explanation).items())
    return "\n".join((title(explanation), f"# For Accelerate {ACCELERATE}, in front of a script with {beside}",
                      *notes(explanation), *_yaml(settings), ""))


def deepspeed(explanation: Explanation, layout: Sequence[int] | None) -> str:
    """Return DeepSpeed's configuration, which the trainer fills with its batch. Raises InputError without its ZeRO."""
    if explanation.choices["data_parallel"] != "deepspeed":
        raise InputError("write", "deepspeed", "must be of a run with --zero-stage, which DeepSpeed shards")
    return json.dumps({**_zero(explanation), "train_micro_batch_size_per_gpu": "auto",
                       "gradient_accumulation_steps": "auto", "train_batch_size": "auto"}, indent=2) + "\n"


def settings_beside(explanation: Explanation) -> dict[str, str]:
    """Return settings of the trainer that a file of Accelerate or DeepSpeed does not say, by name."""
    return {key: _word(value) for key, value in _settings(explanation)}


def _word(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _settings(explanation: Explanation) -> Iterator[tuple[str, Any]]:
    """Yield settings of model, batch, precision, adapters and kernels in the trainer's own names."""
    inputs, choices = explanation.inputs, explanation.choices
    micro = inputs["micro_batch_size"]
    yield "model_name_or_path", explanation.model.name
    wide = choices["precision"] in ("autocast", "mixed") and choices["adapters"] == "none"
    yield "dtype", "float32" if wide or choices["precision"] == "fp32" else "bfloat16"
    yield "bf16", choices["precision"] != "fp32"
    yield "max_length", inputs["seq_length"]
    yield "per_device_train_batch_size", micro
    yield "gradient_accumulation_steps", inputs["global_batch_size"] // (micro * inputs["data_parallel"])
    yield "gradient_checkpointing", bool(inputs["recompute_full"])
    yield "optim", _optimizer(choices)
    if choices["attention"] == "eager":
        yield "attn_implementation", "eager"
    if all(choices[axis] == option for axis, option in LIGER.values()):
        yield "use_liger_kernel", True
    if choices["adapters"] != "none":
        yield "use_peft", True
        yield "lora_r", inputs["lora_rank"]
        yield "lora_dropout", 0.0
        if choices["adapter_kind"] == "dora":
            yield "use_dora", True
        yield "lora_target_modules", sorted(next(names for names, option in TARGETS.items()
                                                 if option == choices["adapters"]))
        if choices["adapter_ends"] == "copies":
            yield "lora_modules_to_save", sorted(ENDS)
        if choices["base_weights"] == "nf4":
            yield "load_in_4bit", True
            yield "use_bnb_nested_quant", True
        if choices["base_weights"] == "int8":
            yield "load_in_8bit", True


def _optimizer(choices: Mapping[str, str]) -> str:
    """Return the word for an optimizer and its kernel. Raises InputError for one that no setting of the trainer has."""
    usual = IMPLEMENTATIONS["huggingface"]["choices"]
    asked = {axis: choices[axis] for axis in ("optimizer", "optimizer_kernel")}
    for word, chosen in OPTIMIZERS.items():
        if asked == {axis: chosen.get(axis, usual[axis]) for axis in asked}:
            return word
    said = ", ".join(f"{axis} = {option}" for axis, option in asked.items())
    raise InputError("write", "trl", f"must be a format that can say {said}")


def _resharded(explanation: Explanation) -> bool:
    """Return the setting of FSDP2. Raises InputError for units and sums of gradients that Accelerate does not make."""
    choices = explanation.choices
    if choices["precision"] == "mixed" and explanation.inputs["gradient_bytes"] == 4:
        rule = "must be bf16, in which Accelerate sums what it gathers in bf16"
        raise InputError("gradients", "fp32", rule, "bf16")
    others = {axis: option for axis, option in choices.items() if axis not in _UNITS}
    usual = {**IMPLEMENTATIONS["huggingface"]["choices"], **with_needs(others)}
    made = {axis: usual[axis] for axis in _UNITS} | ({"reshard": "never"} if choices["reshard"] == "never" else {})
    for axis, option in made.items():
        if choices[axis] != option:
            asked = " ".join(f"--kernel {name}={value}" for name, value in made.items() if choices[name] != value)
            rule = f"must be {option}, as Accelerate {ACCELERATE} has it for this model: give {asked}"
            raise InputError(f"kernel {axis}", choices[axis], rule, option)
    return choices["reshard"] != "never"


def _stage(explanation: Explanation) -> int:
    return sum(explanation.inputs[name] for name in ("distributed_optimizer", "sharded_gradients", "sharded_weights"))


def _zero(explanation: Explanation) -> dict[str, Any]:
    stage = _stage(explanation)
    zero: dict[str, Any] = {"stage": stage}
    if (offload := explanation.choices["zero_offload"]) != "none":
        parts = {part: name for part, name in OFFLOADED.items() if part in (offload, "optimizer")}
        zero |= {name: {"device": "cpu", "pin_memory": explanation.choices["pinned"] in ("all", part)}
                 for part, name in parts.items()}
    if stage in (1, 2):
        zero |= {"reduce_bucket_size": explanation.inputs["reduce_bucket_size"],
                 "overlap_comm": bool(explanation.inputs["overlap_comm"])}
    if stage == 3:
        zero |= {key: explanation.inputs[name] for key, name in SIZES.items() if name != "reduce_bucket_size"}
    return {"bf16": {"enabled": explanation.choices["precision"] != "fp32"}, "zero_optimization": zero}


def _yaml(settings: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml(value, f"{indent}  ")
        else:
            quoted = isinstance(value, list | bool) or value in _TRUTHS
            yield f"{indent}{key}: {json.dumps(value) if quoted else value}"
