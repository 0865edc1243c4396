"""The published runs with a step time, each with the cluster that it ran on and the group that it is judged in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from shardmath.commands.calibrate.runs import TimedRun, asked
from shardmath.machines import Cluster, Network
from shardmath.machines.gpu import Gpu
from validation import runs as fujii
from validation.measured.case import Case
from validation.measured.reading import rows
from validation.measured.sets import hagemann, nanotron, torchtitan
from validation.measured.sets.kernels import NO_OVERLAPS

#: Most GPUs of a run of nanotron that is judged.
LARGEST = 256
#: How much slower than FlashAttention 2 its first version is, in percent (Dao 2023, forward and backward on A100).
FLASH_1 = 160


@dataclass(frozen=True, eq=False)
class Table:
    """The runs of one table, the cluster that they ran on as far as it is known, and what is assumed of it."""

    name: str
    title: str
    cluster: Cluster
    runs: tuple[TimedRun, ...]
    kernels: tuple[str, ...]
    recomputed: tuple[bool, ...]
    stalls: bool = False


@cache
def tables() -> tuple[Table, ...]:
    """Return the tables that are calibrated, each once."""
    return fujii2024(), hagemann2023(), nanotron_runs()


@cache
def fujii2024(place: int = 2) -> Table:
    """Fujii et al. 2024; ``place`` is that of the pipeline in the order of ranks, which they do not say."""
    timed_runs = [(run, _fujii(run)) for run in fujii.read() if run.status == "ok"]
    cluster = Cluster(
        name="A100-40GB, 4 HDR-200 for 8 GPUs", gpu=fujii.GPU, gpus_per_node=8, network=_hdr(4),
        parameters={"pipeline_place": place},
    )
    return Table("fujii2024", "Fujii et al. 2024 on A100-40GB", cluster, tuple(run for _, run in timed_runs),
                 ("flash",) * len(timed_runs), (False,) * len(timed_runs))


@cache
def hagemann2023(balanced: bool = True) -> Table:
    """Hagemann et al. 2023: gradients in bf16, made apart and added; FlashAttention 1 in some of the runs.

    ``balanced``: stages hold about as many parameters each, not as many layers.
    """
    cells = rows(hagemann.TABLE)
    cases = [
        (case, cell["kernel"]) for case, cell in zip(hagemann.read(), cells, strict=True) if case.seconds is not None
    ]
    cluster = Cluster(name="A100-80GB, HDR-200", gpu=hagemann.GPU, gpus_per_node=8, network=_hdr(8))

    def run(case: Case, kernel: str) -> TimedRun:
        own = {"weight_gradient": "separate", "rope": "unfused"}
        peak = Gpu.named("a100-80gb").bf16_gflops
        assert peak is not None
        slower = {"attention_flops": peak * 10**9 * 100 // FLASH_1} if kernel == _FLASH_1 else {}
        group = f"{case.arguments['seq_length']} tokens, {_gpus(case)} GPUs"
        layers = hagemann.stage_layers(case.arguments["pipeline_parallel"])
        if balanced and len(set(layers)) > 1:
            case = replace(case, arguments={**case.arguments, "pipeline_layout": layers})
        return _timed(case, group, own, {**NO_OVERLAPS, **slower})

    return Table(
        "hagemann2023", "Hagemann et al. 2023 on A100-80GB", cluster, tuple(run(*item) for item in cases),
        tuple(kernel for _, kernel in cases), tuple(hagemann.RECOMPUTED in case.traits for case, _ in cases),
    )


@cache
def nanotron_runs() -> Table:
    """Return the Ultra-Scale Playbook's runs of nanotron."""
    cases = [case for case in nanotron.read() if case.seconds is not None and _gpus(case) <= LARGEST]
    assert all(case.model is not None for case in cases)
    cluster = Cluster.named(nanotron.GPU, "efa-p5")
    runs = tuple(_timed(case, f"{case.model.name.split()[-1]}, {_gpus(case)} GPUs") for case in cases if case.model)
    return Table("nanotron", "nanotron on H100 (Ultra-Scale Playbook)", cluster, runs, ("flash",) * len(runs),
                 (False,) * len(runs), stalls=True)


@cache
def torchtitan_runs() -> tuple[tuple[Case, TimedRun, Cluster], ...]:
    """Return runs of torchtitan in bf16, with the cluster of each; FP8 has no evaluator of torchtitan."""
    clusters = {"H200": Cluster.named("h200"), "H100-96GB": Cluster.named(torchtitan.limited_h100())}
    cases = [(case, row["gpu"]) for case, row in zip(torchtitan.read(), rows(torchtitan.TABLE), strict=True)]
    eager = {"norm": "torch"}  # the runs are older than PyTorch's fused RMSNorm
    return tuple(
        (case, _timed(case, case.group, eager if case.group == torchtitan.BF16 else None), clusters[gpu])
        for case, gpu in cases if case.seconds is not None and case.group != torchtitan.FLOAT8
    )


_FLASH_1 = "flash_attentionv1.0.8"


def _hdr(ports: int) -> Network:
    return Network(name=f"{ports} HDR-200 for 8 GPUs", gbit_per_s=200, rails=ports, latency_ns=14_000,
                   source="assumed")


def _gpus(case: Case) -> int:
    sizes = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel")
    return prod(case.arguments.get(name, 1) for name in sizes)


def _timed(
    case: Case, group: str, kernels: Mapping[str, str] | None = None, machine: Mapping[str, int] | None = None,
) -> TimedRun:
    assert case.model is not None
    assert case.seconds is not None
    arguments = dict(case.arguments)
    arguments["kernels"] = {**arguments.get("kernels", {}), **(kernels or {})}
    return TimedRun(asked(case.model, case.gpu, **arguments), case.seconds, group, machine or {})


def _fujii(run: fujii.Run) -> TimedRun:
    arguments = asked(
        fujii.MODEL, fujii.GPU, seq_length=fujii.SEQ_LENGTH, global_batch_size=fujii.GLOBAL_BATCH_SIZE,
        micro_batch_size=run.micro_batch_size, tensor_parallel=run.tensor_parallel,
        context_parallel=run.context_parallel, pipeline_parallel=run.pipeline_parallel, num_gpus=run.num_gpus,
        gradients="fp32", distributed_optimizer=True, vocab_multiple=1,
    )
    seconds = _megatron_flops() / (float(run.tflops) * 1e12 * run.num_gpus)
    return TimedRun(arguments, seconds, f"{run.num_gpus} GPUs", NO_OVERLAPS)


def _megatron_flops() -> float:
    """Return Megatron-LM's FLOPs of a step (``num_floating_point_operations``), from which the table's TFLOP/s come.

    It counts the whole square of attention.
    """
    model, length = fujii.MODEL, fujii.SEQ_LENGTH
    h, width = model.hidden_size, model.num_attention_heads * model.head_dim
    attention = (1 + model.num_kv_heads / model.num_attention_heads + length / h) * width / h
    inner = 1.5 * model.ffn_hidden_size / h + model.vocab_size / (2 * model.num_layers * h)
    return 12 * fujii.GLOBAL_BATCH_SIZE * length * model.num_layers * h * h * (attention + inner)
