"""Public throughputs: what vendors and projects print of their own training runs, with the layout of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

from shardmath.commands.calibrate.runs import TimedRun, asked
from shardmath.errors import InputError
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import varied
from validation.measured.reading import rows, whole
from validation.measured.sets.kernels import FP8_WEIGHTS, MEGATRON_TE, NO_OVERLAPS, TE_LOSS
from validation.measured.sets.known_to_run import layers_of_stages
from validation.measured.sets.torchtitan import limited_h100

TABLE = "public_throughput.csv"
#: Runs of models with experts that no other table has: what tokens and experts cost, each setting alone.
BESIDE = "public_experts.csv"
#: Note of the runs that a constant is set by.
SETTING = "sets the constant"
NVIDIA, TITAN, MEGATRON = "Megatron-Core", "torchtitan", "Megatron-LM"
#: NVIDIA's recipes hide collectives beside work, and reduce gradients in bf16.
OVERLAPS = {"overlap_grad_reduce": 1, "overlap_param_gather": 1}
#: Layers of every stage where recipes of Megatron-Bridge list them: its performance recipes of DeepSeek-V3, by stages.
LISTS = {("deepseek-v3", 8): (8, *[8] * 6, 5), ("deepseek-v3", 16): (4, *[4] * 14, 1),
         ("deepseek-v3", 32): (1, *[2] * 30, 0)}
#: Sizes of a model that the catalogue does not have, and the one that it is like.
MODELS = {"megatron-530b": ("megatron-1t", {"num_layers": 105, "hidden_size": 20480, "ffn_hidden_size": 81920,
                                            "num_attention_heads": 128, "num_kv_heads": 128})}


@dataclass(frozen=True, eq=False)
class Public:
    """One row: the run and its cluster, or the reason why its time is not counted yet."""

    id: str
    gpu: str
    shown: bool
    cluster: Cluster | None
    run: TimedRun | None
    refusal: str = ""
    note: str = ""

    @property
    def has_experts(self) -> bool:
        """True for a counted run of a model with experts: constants are never fitted to it."""
        return self.run is not None and bool(self.run.job.model.num_experts)


def is_shown(name: str) -> bool:
    """Return True for rows that constants may be fitted to: the id's SHA-256 has an even last digit."""
    return int(sha256(name.encode()).hexdigest()[-1], 16) % 2 == 0


@cache
def public_runs() -> tuple[Public, ...]:
    """Return all rows, in the order of the table."""
    return tuple(_public(row) for row in rows(TABLE))


@cache
def runs_beside() -> tuple[Public, ...]:
    """Return the runs of models with experts beside the table."""
    return tuple(_public(row) for row in rows(BESIDE))


def _public(row: dict[str, str]) -> Public:
    name, gpu = row["id"], row["gpu"]
    try:
        cluster, model = Cluster.named(_gpu(gpu)), _model(row)
        job = asked(model, cluster.gpu, **_arguments(row))
        _ = job.evaluator.times
    except (InputError, ValueError) as error:
        return Public(name, gpu, is_shown(name), None, None, str(error))
    machine = NO_OVERLAPS if row["framework"] == MEGATRON else OVERLAPS
    if row["framework"] == NVIDIA and whole(row["tensor_parallel"]) > 1:
        machine = {**machine, "tp_comm_overlap": 1}
    if whole(row["expert_overlap"], 0):
        machine = {**machine, "expert_overlap": 1}
    return Public(name, gpu, is_shown(name), cluster, TimedRun(job, _seconds(row), gpu, machine), note=row["note"])


def _gpu(name: str) -> Gpu:
    return limited_h100() if name == limited_h100().name else Gpu.named(name)


def _model(row: dict[str, str]) -> Model:
    name = row["model"]
    base, changes = MODELS.get(name, (name, {}))
    further = {"num_mtp_layers": 0} if row["note"] == "without MTP" else {}
    return varied(base, name=name, **changes, **further)


def _seconds(row: dict[str, str]) -> float:
    """Return the seconds of a step, from tokens per second of each GPU where the table has no seconds."""
    if row["step_seconds"]:
        return float(row["step_seconds"])
    tokens = whole(row["global_batch_size"]) * whole(row["seq_length"])
    return tokens / (float(row["tokens_per_second_per_gpu"]) * whole(row["gpus"]))


def _arguments(row: dict[str, str]) -> dict[str, Any]:
    model, framework = _model(row), row["framework"]
    pipeline = whole(row["pipeline_parallel"])
    if not row["virtual_pipeline"]:
        raise ValueError("the source does not say how many chunks a stage has")
    chunks = whole(row["virtual_pipeline"])
    arguments: dict[str, Any] = {
        name: whole(row[name])
        for name in ("seq_length", "global_batch_size", "micro_batch_size", "tensor_parallel", "pipeline_parallel",
                     "context_parallel")
    } | {"num_gpus": whole(row["gpus"])}
    if chunks > 1 and pipeline > 1:
        arguments["virtual_pipeline"] = chunks
    if model.num_layers % (pipeline * chunks):
        arguments["pipeline_layout"] = (LISTS.get((model.name, pipeline * chunks))
                                        or layers_of_stages(model, pipeline * chunks))
    if whole(row["expert_parallel"]) > 1:
        arguments |= {"expert_parallel": whole(row["expert_parallel"]), "expert_tensor_parallel": 1}
    return arguments | _FRAMEWORKS[framework](row, model)


def _nvidia(row: dict[str, str], model: Model) -> dict[str, Any]:
    if whole(row["fsdp"]):
        raise ValueError("Megatron-Core's FSDP is not read here yet")
    kernels = {**MEGATRON_TE, **(TE_LOSS if not model.num_mtp_layers else {})}  # one of its losses only is counted
    if row["precision"] != "bf16":
        kernels |= {**FP8_WEIGHTS, "fp8": row["precision"].removeprefix("fp8 ")}
    if row["dispatch"]:
        kernels |= {"dispatch": row["dispatch"]}
    return {"implementation": "megatron", "kernels": kernels, "gradients": "bf16", "distributed_optimizer": True}


def _torchtitan(row: dict[str, str], model: Model) -> dict[str, Any]:
    eager = {"norm": "torch"} if row["note"] == "eager" else {}
    recompute = {"full": "full", "op": "selective", "none": "none"}.get(row["recompute"])
    every = {"recompute": "full", "kernels": {"recompute_method": "every"}, "recompute_num_layers": 2}
    return {"implementation": "torchtitan", "kernels": eager, **({"recompute": recompute} if recompute else every)}


def _megatron(row: dict[str, str], model: Model) -> dict[str, Any]:
    kernels = {"attention": "fused_softmax", "norm": "fused"}
    return {"implementation": "megatron", "kernels": kernels, "gradients": "fp32", "distributed_optimizer": False,
            "recompute": row["recompute"], "sequence_parallel": row["note"] == "sequence parallelism"}


_FRAMEWORKS = {NVIDIA: _nvidia, TITAN: _torchtitan, MEGATRON: _megatron}
