"""Account for one configuration: bytes by component and role for every pipeline rank, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib import import_module
from os import PathLike
from typing import Any

from shardmath.errors import InputError
from shardmath.evaluators import Evaluator, find
from shardmath.generated.definitions import END_COMPONENTS, PUBLISHED, ROLES, SITES, VERDICTS, verdict
from shardmath.gpus import Gpu
from shardmath.models import Model
from shardmath.parameters import checked, refuse_illegal
from shardmath.settings import as_gpu, as_model, recompute_switches, settings


@dataclass(frozen=True)
class Line:
    """One line of an account. ``bytes`` is a fraction only for a component's share of sharded states."""

    term: str
    component: str
    role: str
    bytes: int | Fraction


@dataclass(frozen=True)
class RankAccount:
    """All that one pipeline rank keeps at its peak, in bytes.

    ``in_flight`` counts chunks of layers; ``site`` is the moment of a step at which the rank peaks.
    """

    rank: int
    in_flight: int
    site: str
    lines: tuple[Line, ...]
    by_role: Mapping[str, int]
    total: int
    share: float
    verdict: str


@dataclass(frozen=True)
class PublishedEstimate:
    """What a published set of formulas says of the same configuration, in bytes."""

    name: str
    title: str
    total: int | Fraction
    verdict: str


@dataclass(frozen=True)
class Explanation:
    """The account of one configuration.

    ``inputs`` has every parameter by name, ``ranks`` one account per pipeline rank.
    """

    model: Model
    gpu: Gpu
    implementation: str
    recompute: str
    inputs: Mapping[str, int]
    ranks: tuple[RankAccount, ...]
    published: tuple[PublishedEstimate, ...]

    @property
    def peak(self) -> RankAccount:
        """The rank that keeps most; the first of several."""
        return max(self.ranks, key=lambda account: account.total)

    @property
    def reason(self) -> str:
        """Why that rank and not another: the role with the largest excess over the other end."""
        peak = self.peak
        if len(self.ranks) == 1:
            return "the only pipeline rank"
        other = self.ranks[-1] if peak is self.ranks[0] else self.ranks[0]
        role = max(ROLES, key=lambda name: peak.by_role[name] - other.by_role[name])
        excess = (peak.by_role[role] - other.by_role[role]) / 2**30
        return f"{excess:.2f} GiB more of {role} than on rank {other.rank}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; bytes are integers except for shares that are not whole."""
        return {
            "model": self.model.model_dump(),
            "gpu": self.gpu.model_dump(),
            "implementation": self.implementation,
            "recompute": self.recompute,
            "inputs": dict(self.inputs),
            "peak_rank": self.peak.rank,
            "peak_bytes": self.peak.total,
            "verdict": self.peak.verdict,
            "reason": self.reason,
            "ranks": [
                asdict(account) | {"lines": [asdict(line) | {"bytes": plain(line.bytes)} for line in account.lines]}
                for account in self.ranks
            ],
            "published": [asdict(item) | {"total": plain(item.total)} for item in self.published],
        }


def explain(
    model: Model | str | PathLike[str],
    gpu: Gpu | str,
    *,
    seq_length: int = 8192,
    micro_batch_size: int = 1,
    global_batch_size: int | None = None,
    tensor_parallel: int = 1,
    context_parallel: int = 1,
    pipeline_parallel: int = 1,
    data_parallel: int | None = None,
    num_gpus: int | None = None,
    sequence_parallel: bool | None = None,
    recompute: str = "none",
    implementation: str = "megatron",
    kernels: Mapping[str, str] | None = None,
    gradients: str | None = None,
    distributed_optimizer: bool | None = None,
    vocab_multiple: int | None = None,
    node_size: int | None = None,
) -> Explanation:
    """Account for every byte that each pipeline rank keeps.

    ``model`` is a name of the catalogue or the path of a Hugging Face ``config.json``, ``gpu`` a name of
    the catalogue. ``data_parallel`` follows from ``num_gpus`` (GPUs of the job) or is 1. Without a
    ``global_batch_size`` (sequences) there are just enough micro-batches to fill the pipeline. Sequence
    parallelism is on by default where the implementation has it and ``tensor_parallel`` is above 1.

    Raises InputError for every value that is not legal.
    """
    evaluator = find(implementation, kernels)
    chosen, device = as_model(model), as_gpu(gpu)
    values = settings(
        evaluator, chosen, device, seq_length=seq_length, node_size=node_size, gradients=gradients,
        distributed_optimizer=distributed_optimizer, vocab_multiple=vocab_multiple,
    )
    values |= {
        "tensor_parallel": checked("tensor_parallel", tensor_parallel),
        "context_parallel": checked("context_parallel", context_parallel),
        "pipeline_parallel": checked("pipeline_parallel", pipeline_parallel),
        "micro_batch_size": checked("micro_batch_size", micro_batch_size),
        **recompute_switches(recompute),
    }
    values |= _gpus(values, data_parallel, num_gpus)
    values["global_batch_size"] = _batch(values, global_batch_size)
    if sequence_parallel is None:
        sequence_parallel = bool(evaluator.defaults["sequence_parallel"]) and values["tensor_parallel"] > 1
    values["sequence_parallel"] = checked("sequence_parallel", sequence_parallel)
    refuse_illegal(evaluator.terms, {**values, "pipeline_rank": 0})
    ranks = tuple(
        _account(evaluator, {**values, "pipeline_rank": rank}) for rank in range(values["pipeline_parallel"])
    )
    published = _published(evaluator.implementation, values)
    return Explanation(chosen, device, evaluator.name, recompute, values, ranks, published)


def verdict_of(estimate: int | Fraction, gpu_memory: int) -> str:
    """The name of the verdict on an estimate; both in bytes."""
    return VERDICTS[verdict(estimate, gpu_memory)][0]


def plain(number: int | Fraction) -> int | float:
    """A number for JSON: an integer where it is one."""
    return int(number) if number == int(number) else float(number)


def _gpus(values: Mapping[str, int], data_parallel: int | None, num_gpus: int | None) -> dict[str, int]:
    ranks = values["tensor_parallel"] * values["context_parallel"] * values["pipeline_parallel"]
    if num_gpus is None:
        data = checked("data_parallel", 1 if data_parallel is None else data_parallel)
        return {"data_parallel": data, "num_gpus": checked("num_gpus", ranks * data)}
    gpus = checked("num_gpus", num_gpus)
    if data_parallel is not None:
        return {"data_parallel": checked("data_parallel", data_parallel), "num_gpus": gpus}
    if gpus % ranks:
        below = gpus // ranks * ranks
        near = " or ".join(str(value) for value in (below, below + ranks) if value)
        rule = f"must be a multiple of tensor_parallel * context_parallel * pipeline_parallel = {ranks}"
        raise InputError("num_gpus", gpus, rule, near)
    return {"data_parallel": gpus // ranks, "num_gpus": gpus}


def _batch(values: Mapping[str, int], global_batch_size: int | None) -> int:
    if global_batch_size is None:
        global_batch_size = values["micro_batch_size"] * values["data_parallel"] * values["pipeline_parallel"]
    return checked("global_batch_size", global_batch_size)


def _account(evaluator: Evaluator, values: Mapping[str, int]) -> RankAccount:
    module = evaluator.terms
    numbers: dict[str, Fraction] = module.terms(**{name: Fraction(values[name]) for name in module.INPUTS})
    site = _site(numbers)
    held = SITES[site][1]
    lines = []
    for name, size in numbers.items():
        group, _, rest = name.partition(".")
        component, _, kind = rest.rpartition(".")
        role = "transient" if kind == site else kind.removeprefix("expert_")
        if group != "stage" or not component or role not in ROLES or not size:
            continue
        if role == "activation" and (held == "NOTHING" or (held == "LAYERS" and component in END_COMPONENTS)):
            continue
        lines.append(Line(name, component, role, _whole(size)))
    by_role = {role: sum((Fraction(line.bytes) for line in lines if line.role == role), Fraction(0)) for role in ROLES}
    total = int(numbers["stage.total"])
    memory = values["gpu_memory"]
    return RankAccount(
        values["pipeline_rank"], int(numbers["in_flight"]), site, tuple(lines),
        {role: int(size) for role, size in by_role.items()}, total, total / memory, verdict_of(total, memory),
    )


def _site(numbers: Mapping[str, Fraction]) -> str:
    """The moment of a step at which the rank peaks; the first of several."""
    names = [name for name in SITES if f"stage.{name}.all" in numbers]
    best = max(names, key=lambda name: numbers[f"stage.{name}.all"], default="after_forward")
    return best if numbers.get(f"stage.{best}.all") == numbers["stage.moment"] else "after_forward"


def _whole(number: Fraction) -> int | Fraction:
    return int(number) if number.denominator == 1 else number


def _published(implementation: str, values: Mapping[str, int]) -> tuple[PublishedEstimate, ...]:
    """The estimates of the published sets that are about ``implementation``."""
    known = {**values, "virtual_pipeline": 1, "pipeline_rank": 0}
    estimates = []
    for name, (title, about) in PUBLISHED.items():
        if about != implementation:
            continue
        module = import_module(f"shardmath.generated.{name}")
        numbers = module.terms(**{key: Fraction(known[key]) for key in module.INPUTS})
        if f"{name}.static" in numbers:  # else the set is about activations alone
            total = _whole(numbers[f"{name}.total"])
            estimates.append(PublishedEstimate(name, title, total, verdict_of(total, values["gpu_memory"])))
    return tuple(estimates)
