"""The time of a step of one configuration: how long, what it goes to, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from warnings import warn

from shardmath.answers import Answer
from shardmath.compiler.evaluators import Evaluator, times_at
from shardmath.errors import InputError, InputWarning
from shardmath.generated.definitions import PARAMETERS, SPENT
from shardmath.machines import Cluster
from shardmath.machines.cluster import OF_ALL_STAGES
from shardmath.machines.files import any_cluster
from shardmath.machines.gpu import Gpu

#: Layouts whose times differ by less are equal: repeated runs of one layout scatter by 1 to 5 %.
EQUAL = 0.03
#: Shares of a step below this are rounding of floating-point sums.
_ROUNDING = 1e-9


def as_fast(seconds: float, first: float) -> bool:
    """Return True if a step is hardly slower than the first one, so that no model of time tells them apart."""
    return seconds <= (1 + EQUAL) * first


@dataclass(frozen=True)
class StepTime(Answer):
    """The time of one optimizer step, and rates."""

    seconds: float
    """Seconds of the step."""
    tokens: int
    """Tokens of the step, of all ranks."""
    tokens_per_second: float
    """Tokens per second of all GPUs."""
    tokens_per_second_per_gpu: float
    """Tokens per second of one GPU."""
    mfu: float
    """Model FLOPs utilisation: share of the peak of all GPUs, without recomputation."""
    hfu: float
    """Hardware FLOPs utilisation: the same with recomputation."""
    joules_per_token: float
    """Energy of one token in joules; 0 where the power is not known."""
    cost_per_token: float
    """Price of one token in your currency; 0 where the price is not known."""
    rank: int
    """Slowest pipeline rank."""
    spent: Mapping[str, float]
    """Seconds of the slowest rank by part of the step; they add up to ``seconds``."""
    machine: Mapping[str, int]
    """Parameters of the machine by name."""
    error: float | None
    """Error of nine of ten predicted steps, as a share; null where nothing was measured on such GPUs."""


def as_cluster(gpu: Gpu | Cluster | str | PathLike[str], network: str | None = None) -> Cluster:
    """Return a cluster of one kind of GPU: see ``any_cluster``. Raises InputError for one of more."""
    return any_cluster(gpu, network).of_one_kind()


def on_nodes(cluster: Cluster, node_size: int | None) -> Cluster:
    """Return the same cluster with so many GPUs in a server, if a number is given; warn where links end within it."""
    if node_size is None:
        return cluster
    changed = cluster.model_copy(update={"gpus_per_node": node_size})
    if cluster.is_linked and not changed.is_linked and cluster.gpu.pcie_mb_per_s is not None:
        warn(f"node_size = {node_size}: links of {cluster.gpu.name} join {cluster.gpu.link_size} GPUs, so all traffic"
             " inside a node is counted over PCIe; link_size of [gpu] in a cluster file says otherwise", InputWarning,
             stacklevel=1)
    return changed


def machine_values(evaluator: Evaluator, cluster: Cluster, num_gpus: int | None) -> dict[str, int]:
    """Return the machine's parameters by name, for an implementation with its precision and its overlaps.

    Measured links have the bandwidth of the fastest one, until nodes are placed, and figures of all stages together are
    1. Raises InputError where a figure is not known, and where no time is counted.
    """
    evaluator.refuse_untimed()
    precision = "bf16" if evaluator.choices["fp8"] == "none" else "fp8"
    values = cluster.values(precision, num_gpus)
    cluster.refuse_unknown_host(values, evaluator.times.INPUTS)
    own = {name: value for name, value in evaluator.defaults.items() if _is_of_machine(name)}
    links: dict[str, int] = {}
    if evaluator.choices["links"] == "measured":
        if cluster.links is None:
            rule = "must not be given without measured links in a cluster file"
            raise InputError("links", "measured", rule, "uniform")
        links = dict.fromkeys(link_parameters(evaluator), values["network_bandwidth"])
    together = dict.fromkeys((name for name in evaluator.times.INPUTS if name.startswith(OF_ALL_STAGES)), 1)
    return {**values, **own, **cluster.parameters, **links, **together}


def link_parameters(evaluator: Evaluator) -> list[str]:
    """Return parameters of the measured links that the time of a step depends on."""
    return [name for name in evaluator.times.INPUTS if name.endswith("_link_bandwidth")]


def time_unknown(evaluator: Evaluator, cluster: Cluster, num_gpus: int | None) -> str:
    """Name the figure that the time of a step needs and nobody gave; empty where all are known."""
    try:
        machine_values(evaluator, cluster, num_gpus)
    except InputError as error:
        return str(error)
    return ""


def step_time(
    evaluator: Evaluator, values: Mapping[str, int], by_rank: Sequence[Mapping[str, int]] = (),
    error: float | None = None,
) -> StepTime:
    """Return the time of a step for ``values`` of every parameter of layout, model and machine.

    ``by_rank`` has, with an explicit list of layers, what differs on each pipeline rank; ``error`` is that of the
    cluster's constants.
    """
    module = evaluator.times

    def at(rank: int) -> dict[str, float]:
        known = {**values, "pipeline_rank": rank, **(by_rank[rank] if by_rank else {})}
        return times_at(module, known)

    ranks = [at(rank) for rank in range(values["pipeline_parallel"])]
    first, least = ranks[0], min(numbers["spent.idle"] for numbers in ranks)
    # The first of ranks that differ by rounding only.
    rank = next(
        rank for rank, numbers in enumerate(ranks)
        if numbers["spent.idle"] - least <= _ROUNDING * first["step.time"]
    )
    numbers = ranks[rank]
    parts = {part: max(0.0, numbers[f"spent.{part}"]) for part in SPENT if f"spent.{part}" in numbers}
    return StepTime(
        first["step.time"], int(first["step.tokens"]), first["step.tokens_per_second"],
        first["step.tokens_per_second_per_gpu"], first["step.mfu"], first["step.hfu"], first["step.energy_per_token"],
        first["step.cost_per_token"], rank, parts,
        {name: values[name] for name in module.INPUTS if _is_of_machine(name)}, error,
    )


def _is_of_machine(name: str) -> bool:
    return PARAMETERS[name][4] == "machine"
