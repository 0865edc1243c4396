"""A run as a job configuration of torchtitan (TOML), tables and keys in the order of its own examples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from shardmath.errors import InputError
from shardmath.formats.run import REPLACE, title
from shardmath.formats.torchtitan.reading import (
    FLAVORS,
    OPTIMIZER_KERNELS,
    PRECISIONS,
    SCHEDULES,
    shared_out,
    titan_model,
)
from shardmath.models.model import Model

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation

#: Values of keys.
Value = str | float | list[str]
#: A key with its value; under ``REPLACE`` what to put in the place of the next one.
Key = tuple[str, Value]
#: The release whose configuration has all keys that are written.
RELEASE = "0.2.2"


def configuration(explanation: Explanation, layout: Sequence[int] | None) -> str:
    """Return the text of the file. Raises InputError for a model that is not a flavor."""
    tables: dict[str, list[Key]] = {
        "model": [*_flavor(explanation.model),
                  (REPLACE, "by the folder of your tokenizer"), ("hf_assets_path", "./assets/hf/Llama-3.1-8B")],
        "optimizer": [("name", "AdamW"),
                      ("implementation", _key(OPTIMIZER_KERNELS, explanation.choices["optimizer_kernel"])),
                      *([("early_step_in_backward", True)] if explanation.choices["optimizer_step"] != "after" else []),
                      (REPLACE, "by your learning rate"), ("lr", 3e-4)],
        "training": [*_training(explanation), (REPLACE, "by your iterations"), ("steps", 1000),
                     (REPLACE, "by your data"), ("dataset", "c4_test")],
        "parallelism": list(_parallel(explanation, layout)),
        "activation_checkpoint": list(_recompute(explanation)),
        **({"compile": [("enable", True), ("components", parts)]} if (parts := _compiled(explanation)) else {}),
        **({"checkpoint": [("enable", True), ("async_mode", "async")]}
           if explanation.choices["loading"] == "distributed_copied" else {}),
    }
    return "\n".join((title(explanation), *_started(explanation), "")) + "".join(
        f"\n[{table}]\n" + "".join(f"{_line(key, value)}\n" for key, value in keys) for table, keys in tables.items()
    )


def _compiled(explanation: Explanation) -> list[str]:
    """Return what is compiled, in the words of torchtitan."""
    words = {"model": explanation.choices["compile"] == "layers",
             "loss": explanation.choices["loss"] == "dtensor_compiled"}
    return [word for word, compiled in words.items() if compiled]


def _started(explanation: Explanation) -> Iterator[str]:
    """Return the launch command with its number of GPUs, which the file does not say."""
    yield f"# For torchtitan {RELEASE}: torchrun on {explanation.inputs['num_gpus']} GPUs, -m torchtitan.train"
    yield f"# --job.config_file FILE. Lines under {REPLACE} are placeholders."


def _line(key: str, value: Value) -> str:
    if key == REPLACE:
        return f"# {REPLACE} {value}"
    return f"{key} = {json.dumps(value)}"  # numbers, words, truths and lists are spelled alike in TOML


def _key(table: Mapping[str, str], value: str) -> str:
    return next(key for key, other in table.items() if other == value)


def _flavor(model: Model) -> Iterator[Key]:
    """Name and flavor of the model. Raises InputError for one that torchtitan does not name."""
    dropped = {"name", "source", "note"}
    named = {(family, flavor): name for family, flavors in FLAVORS.items() for flavor, name in flavors.items()}
    for (family, flavor), name in named.items():
        if titan_model(name).model_dump(exclude=dropped) == model.model_dump(exclude=dropped):
            yield "name", family
            yield "flavor", flavor
            return
    raise InputError("write", "torchtitan", f"must be of a model that torchtitan names: {', '.join(named.values())}")


def _training(explanation: Explanation) -> Iterator[Key]:
    values = explanation.inputs
    rank = values["global_batch_size"] // values["data_parallel"]
    piped = values["pipeline_parallel"] > 1
    yield "local_batch_size", rank if piped else values["micro_batch_size"]
    yield "global_batch_size", values["global_batch_size"]
    yield "seq_len", values["seq_length"]
    yield "dtype", _key(PRECISIONS, explanation.choices["precision"])


def _parallel(explanation: Explanation, layout: Sequence[int] | None) -> Iterator[Key]:
    values = explanation.inputs
    replicas, schedule = values["data_parallel_replicas"], explanation.choices["schedule"]
    yield "data_parallel_replicate_degree", replicas
    yield "data_parallel_shard_degree", values["data_parallel"] // replicas
    yield "fsdp_reshard_after_forward", explanation.choices["reshard"]
    yield "tensor_parallel_degree", values["tensor_parallel"]
    yield "context_parallel_degree", values["context_parallel"]
    if explanation.model.num_experts:
        yield "expert_parallel_degree", values["expert_parallel"]
        yield "expert_tensor_parallel_degree", values["expert_tensor_parallel"] if values["expert_parallel"] > 1 else 1
    yield "pipeline_parallel_degree", values["pipeline_parallel"]
    if values["pipeline_parallel"] > 1:
        yield "pipeline_parallel_schedule", _key(SCHEDULES, schedule)
        yield "pipeline_parallel_microbatch_size", values["micro_batch_size"]
        yield from _stages(explanation, layout)


def _stages(explanation: Explanation, layout: Sequence[int] | None) -> Iterator[Key]:
    """Yield stages as torchtitan makes them, where embedding and head may count as layers.

    Raises InputError for stages that it does not make.
    """
    values, total = explanation.inputs, explanation.model.num_layers
    stages = values["pipeline_parallel"] * values["virtual_pipeline"]
    ends = (values["account_for_embedding"], values["account_for_loss"])
    if layout is not None:
        ways = [(first, last) for first in (0, 1) for last in (0, 1)
                if shared_out(total, stages, first, last) == tuple(layout)]
        if not ways:
            text = ",".join(map(str, shared_out(total, stages, 1, 1)))
            stages_asked = ",".join(map(str, layout))
            raise InputError("pipeline_layout", stages_asked, "must be stages that torchtitan makes", text)
        ends = ways[0]
    elif values["first_stage_layers"] or values["last_stage_layers"]:
        raise InputError("first_stage_layers", values["first_stage_layers"],
                         "must be 0, last_stage_layers too: torchtitan shares out the layers itself", "0")
    yield "pipeline_parallel_first_stage_less_layers", ends[0]
    yield "pipeline_parallel_last_stage_less_layers", ends[1]
    yield "pipeline_parallel_layers_per_stage", -(-(total + sum(ends)) // stages)


def _recompute(explanation: Explanation) -> Iterator[Key]:
    if not explanation.inputs["recompute_full"]:
        yield "mode", "none"
    elif explanation.choices["recompute_saves"] == "ops":
        yield "mode", "selective"
        yield "selective_ac_option", "op"
    elif explanation.inputs["recompute_num_layers"] > 1:
        yield "mode", "selective"
        yield "selective_ac_option", str(explanation.inputs["recompute_num_layers"])
    else:
        yield "mode", "full"
