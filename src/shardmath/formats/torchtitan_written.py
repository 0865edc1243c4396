"""A run as a job configuration of torchtitan (TOML), tables and keys in the order of its own examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from shardmath.errors import InputError
from shardmath.formats.run import title
from shardmath.formats.torchtitan import FLAVORS, OPTIMIZER_KERNELS, SCHEDULES
from shardmath.models import Model

if TYPE_CHECKING:
    from shardmath.accounting import Explanation

Key = tuple[str, str | int]


def configuration(found: Explanation, layout: Sequence[int] | None) -> str:
    """The text of the file. Raises InputError for a model that is not a flavor."""
    tables: dict[str, list[Key]] = {
        "model": [("name", "llama3"), ("flavor", _flavor(found.model))],
        "optimizer": [("name", "AdamW"),
                      ("implementation", _key(OPTIMIZER_KERNELS, found.choices["optimizer_kernel"]))],
        "training": list(_training(found)),
        "parallelism": list(_parallel(found)),
        "activation_checkpoint": list(_recompute(found)),
    }
    return f"{title(found)}\n" + "".join(
        f"\n[{table}]\n" + "".join(f"{key} = {_shown(value)}\n" for key, value in keys)
        for table, keys in tables.items()
    )


def _shown(value: str | int) -> str:
    return str(value) if isinstance(value, int) else f'"{value}"'


def _key(table: Mapping[str, str], value: str) -> str:
    return next(key for key, other in table.items() if other == value)


def _flavor(model: Model) -> str:
    dropped = {"name", "source", "note"}
    for flavor, name in FLAVORS.items():
        if Model.named(name).model_dump(exclude=dropped) == model.model_dump(exclude=dropped):
            return flavor
    raise InputError("write", "torchtitan", f"must be of a model that torchtitan names: {', '.join(FLAVORS.values())}")


def _training(found: Explanation) -> Iterator[Key]:
    values = found.inputs
    rank = values["global_batch_size"] // values["data_parallel"]
    piped = values["pipeline_parallel"] > 1
    yield "local_batch_size", rank if piped else values["micro_batch_size"]
    yield "global_batch_size", values["global_batch_size"]
    yield "seq_len", values["seq_length"]


def _parallel(found: Explanation) -> Iterator[Key]:
    values = found.inputs
    replicas, schedule = values["data_parallel_replicas"], found.choices["schedule"]
    yield "data_parallel_replicate_degree", replicas
    yield "data_parallel_shard_degree", values["data_parallel"] // replicas
    yield "fsdp_reshard_after_forward", found.choices["reshard"]
    yield "tensor_parallel_degree", values["tensor_parallel"]
    yield "context_parallel_degree", values["context_parallel"]
    yield "pipeline_parallel_degree", values["pipeline_parallel"]
    if values["pipeline_parallel"] > 1:
        yield "pipeline_parallel_schedule", _key(SCHEDULES, schedule)
        yield "pipeline_parallel_microbatch_size", values["micro_batch_size"]
        yield from _stages(found)


def _stages(found: Explanation) -> Iterator[Key]:
    """Stages of as many layers each, which torchtitan makes where embedding and head do not count as layers."""
    stages = found.inputs["pipeline_parallel"] * found.inputs["virtual_pipeline"]
    yield "pipeline_parallel_first_stage_less_layers", 0
    yield "pipeline_parallel_last_stage_less_layers", 0
    yield "pipeline_parallel_layers_per_stage", found.model.num_layers // stages


def _recompute(found: Explanation) -> Iterator[Key]:
    if not found.inputs["recompute_full"]:
        yield "mode", "none"
    elif found.choices["recompute_saves"] == "ops":
        yield "mode", "selective"
        yield "selective_ac_option", "op"
    elif found.inputs["recompute_num_layers"] > 1:
        yield "mode", "selective"
        yield "selective_ac_option", str(found.inputs["recompute_num_layers"])
    else:
        yield "mode", "full"
