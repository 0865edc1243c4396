"""SimuMax's measurements on B200: Megatron-LM with Transformer Engine, every stage, bytes of every GPU."""

from __future__ import annotations

from shardmath.generated.definitions import TORCH_WORKSPACES
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import PEAK, RESERVED, Case, Measured, varied
from validation.measured.reading import rows, whole
from validation.measured.sets.kernels import ALL_TO_ALL, MEGATRON_TE, TE_LOSS

TABLE = "simumax_b200_stages.csv"
#: The same runs GPU by GPU: the eight of a server, stage by stage.
GPUS = "simumax_b200_gpus.csv"
GPU = Gpu.named("b200")
DENSE, EXPERTS = "dense", "experts and latent attention"
#: The launchers take Megatron's NullTokenizer, which adds one token to the vocabulary that it is given.
EXTRA_TOKENS = 1
#: They give Llama 3.1 405B 16 groups of queries; the model was first published so, and later with 8.
QUERY_GROUPS = {"llama-3.1-405b": 16}
#: They route both DeepSeek models as the second one: softmax of all scores, an auxiliary loss, experts padded to
#: the average of their tokens. They also use some groups of experts alone, which no model here says.
ROUTER = {"scores": "softmax_all", "balance": "loss", "router_precision": "bf16"}
CAPACITY_PERCENT = 100
COLUMNS = {PEAK: "most_peak_bytes", RESERVED: "most_reserved_bytes"}


def read(table: str = TABLE, quantity: str = PEAK) -> tuple[Case, ...]:
    """Read a case for every run; its measurements are the largest of the GPUs of each pipeline stage.

    Raises ValueError for a run whose stages are not all there.
    """
    stages: dict[str, list[dict[str, str]]] = {}
    for row in rows(table):
        stages.setdefault(row["case"], []).append(row)
    return tuple(_case(name, parts, quantity) for name, parts in stages.items())


def reserved_by_gpu() -> dict[str, list[int]]:
    """Return the reserved bytes of every GPU of a run, the first stage's first."""
    runs: dict[str, list[int]] = {}
    for row in rows(GPUS):
        runs.setdefault(row["case"], []).append(whole(row["reserved_bytes"]))
    return runs


def _case(name: str, stages: list[dict[str, str]], quantity: str) -> Case:
    first = stages[0]
    pipeline, data = whole(first["pipeline_parallel"]), whole(first["data_parallel"])
    if [whole(row["pipeline_rank"]) for row in stages] != list(range(pipeline)):
        raise ValueError(f"{name}: not every stage is there, once and in order")
    model = _model(first["model"], whole(first["layers"]))
    kernels = {**MEGATRON_TE, **TE_LOSS}
    context = whole(first["context_parallel"])
    if context > 1:
        kernels |= ALL_TO_ALL
    batch = whole(first["num_microbatches"]) * whole(first["micro_batch_size"]) * data
    arguments = {
        "implementation": "megatron", "kernels": kernels, "seq_length": whole(first["seq_length"]),
        "micro_batch_size": whole(first["micro_batch_size"]), "global_batch_size": batch,
        "tensor_parallel": whole(first["tensor_parallel"]), "context_parallel": context,
        "pipeline_parallel": pipeline, "data_parallel": data,
        "torch_workspace_bytes": TORCH_WORKSPACES["before 2.12"],  # measured before that version was there
    }
    if model.num_experts:
        kernels |= ROUTER
        arguments |= {"expert_parallel": whole(first["expert_parallel"]), "expert_capacity_percent": CAPACITY_PERCENT}
    return Case(
        id=name, group=EXPERTS if model.num_experts else DENSE, source=first["source"], model=model, gpu=GPU,
        arguments=arguments,
        measured=tuple(Measured(quantity, whole(row[COLUMNS[quantity]]), whole(row["pipeline_rank"]))
                       for row in stages),
    )


def _model(name: str, layers: int) -> Model:
    base = Model.named(name)
    changes = {"name": f"{name} with {layers} layers", "num_layers": layers,
               "vocab_size": base.vocab_size + EXTRA_TOKENS, "num_mtp_layers": 0}
    if name in QUERY_GROUPS:
        changes["num_kv_heads"] = QUERY_GROUPS[name]
    if base.num_experts:
        changes["first_dense_layers"] = 1
    return varied(name, **changes)
