"""Flags of Megatron-LM as a run: every flag is understood, without effect, not counted, refused or unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmath.errors import InputError
from shardmath.formats.megatron import flags
from shardmath.formats.megatron.fsdp import sharding_of
from shardmath.formats.megatron.kernels import (
    amax_history_of,
    capacity_of,
    kernels_of,
    libraries_of,
    load_of,
    precision_of,
)
from shardmath.formats.megatron.layout import layout_of
from shardmath.formats.megatron.model import model_of
from shardmath.formats.options import Options
from shardmath.formats.run import Run
from shardmath.formats.scripts.expansion import unmarked
from shardmath.models.model import Model

#: Programs that train what is counted here; others of the same folder do not.
OTHER_PROGRAMS = {
    "pretrain_bert.py": "BERT", "pretrain_t5.py": "T5", "pretrain_mamba.py": "Mamba",
    "pretrain_vlm.py": "a model of images",
    "pretrain_hybrid.py": "a hybrid model", "train_rl.py": "reinforcement learning",
    "pretrain_retro.py": "Retro", "pretrain_ict.py": "a retriever", "pretrain_realm.py": "a retriever",
    "pretrain_vision_classify.py": "a model of images", "pretrain_vision_dino.py": "a model of images",
    "pretrain_vision_inpaint.py": "a model of images", "run_text_generation_server.py": "inference",
    "generate_samples_gpt.py": "inference", "gpt_static_inference.py": "inference",
    "gpt_dynamic_inference.py": "inference",
}


def run_of(
    options: Options,
    name: str,
    *,
    program: str = "",
    num_gpus: int | None = None,
    environment: Mapping[str, object] | None = None,
    notes: Sequence[str] = (),
    format: str = "megatron",
) -> Run:
    """Return the run that flags describe; ``name`` is that of the model, ``environment`` the variables of the program.

    ``num_gpus`` is what a launcher says. Raises InputError for flags that are wrong, that are missing, and that
    change memory in a way that is not counted yet; its field is the flag.
    """
    if program in OTHER_PROGRAMS:
        raise InputError("script", program, f"must train a GPT: {OTHER_PROGRAMS[program]} is not counted yet")
    for flag, why in flags.REFUSED.items():
        if flag in options.words and not flags.is_off(options.words[flag]):
            raise options.error(flag, f"must not be given: {why}")
    model = model_of(options, name)
    arguments = arguments_of(options, model, num_gpus, environment)
    rest = [flag for flag in options.words if flag not in options.asked and flag not in flags.REFUSED]
    idle = [flag for flag in rest if flag in flags.WITHOUT_EFFECT or flags.idle(flag, model)]
    uncounted = [flag for flag, words in options.words.items()
                 if flag in flags.UNCOUNTED and flag not in idle and not flags.is_off(words)
                 and flags.COUNTED_BY.get(flag, "") not in arguments["kernels"]]
    return Run(
        format, options.source, model, arguments,
        understood=tuple(options.shown(flag) for flag in options.words if flag in options.asked),
        without_effect=tuple(map(options.shown, idle)),
        unknown=tuple(options.shown(flag) for flag in rest if flag not in idle and flag not in flags.UNCOUNTED),
        warnings=(*map(unmarked, notes), *options.warnings,
                  *(f"{options.shown(flag)} is not counted yet: {flags.UNCOUNTED[flag]}" for flag in uncounted)),
        replica_batch=arguments["micro_batch_size"],
    )


def arguments_of(
    options: Options, model: Model, num_gpus: int | None = None, environment: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Return the arguments of ``explain`` that flags ask for, for a model that they describe. Raises InputError."""
    sharded = sharding_of(options, model)
    arguments = layout_of(options, model, num_gpus)
    kernels = {**arguments.pop("kernels", {}), **kernels_of(options, model)}
    kernels |= sharded.pop("kernels", {})
    arguments |= precision_of(options) | sharded | capacity_of(options, model) | load_of(options, model)
    arguments |= amax_history_of(options, kernels)
    return arguments | libraries_of(options, environment or {}) | {"implementation": "megatron", "kernels": kernels}
