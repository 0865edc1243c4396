"""Account for one configuration: bytes by component and role for every pipeline rank, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module

from shardmath.account.anchor import Anchor
from shardmath.account.configured import Configuration, configured_on_any
from shardmath.account.host import fullest_host
from shardmath.account.judged import fullness_of, rule_of, verdict_of
from shardmath.account.outside import Outside, outside_of_a_step
from shardmath.account.placement import Placement
from shardmath.account.slicing import Slicing, slicing
from shardmath.account.stages import StageOnGpu, in_chunks
from shardmath.account.time import StepTime
from shardmath.answers import Amount, Answer, Drawn, Hidden
from shardmath.compiler.evaluators import Evaluator, terms_at
from shardmath.configuration.risk import risk_of
from shardmath.configuration.settings import ON_HOST
from shardmath.generated.definitions import (
    HELD,
    LINES,
    OVERHEADS,
    PUBLISHED,
    RANK_LIMITS,
    ROLES,
    SITES,
    run_out_probability,
)
from shardmath.input.asking import asked_with
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.steps.answers import Replay


@dataclass(frozen=True)
class Line(Answer):
    """One line of an account: a component in one role."""

    term: str
    """Name of the term, as ``shardmath formula`` takes it."""
    component: str
    """Component of the model."""
    role: str
    """Why the rank keeps it: weight, gradient, optimizer, activation, input, buffer or transient."""
    bytes: Amount
    """Bytes; not whole only for a component's share of sharded states."""


@dataclass(frozen=True)
class RankAccount(Answer):
    """All that one pipeline rank keeps at its peak."""

    rank: int
    """Pipeline rank, from 0."""
    parameters: int
    """Elements of weights of every kind, without padding."""
    in_flight: int
    """Chunks of layers in flight."""
    site: str
    """Moment of a step at which the rank peaks."""
    lines: tuple[Line, ...]
    """All that is not 0."""
    by_role: Mapping[str, int]
    """Bytes by role."""
    total: int
    """Bytes of the peak."""
    share: float
    """The peak over the memory of the GPU."""
    verdict: str
    """fits, uncertain or out of memory, as the probability of running out says."""
    rule_80: str
    """The same by the published 80 % rule."""
    limit: int
    """Most bytes of a peak that fits there."""
    moments: Mapping[str, int]
    """Bytes of activations and transients at every moment that has transients."""
    host: int
    """Bytes on the host, of what is offloaded."""


@dataclass(frozen=True)
class Parameters(Answer):
    """Parameters of the model as it is trained, further predictions included; the vocabulary is not padded."""

    total: int
    """All parameters."""
    active: int
    """Those that one token meets: of the routed experts those that it is sent to."""


@dataclass(frozen=True)
class PublishedEstimate(Answer):
    """Estimate of a published set of formulas for the same configuration."""

    name: str
    """Name of the set."""
    title: str
    """Its authors and what they assume."""
    total: Amount
    """Bytes on the first rank."""
    rule_80: str
    """Verdict of the 80 % rule on that estimate."""


@dataclass(frozen=True)
class Process(Answer):
    """Memory of the process on the peak rank."""

    allocated: int
    """Bytes of tensors at the peak."""
    reserved: int
    """Bytes that the caching allocator reserves to hold them."""
    total: int
    """Bytes that the GPU shows as used."""
    communicators: int
    """NCCL communicators."""
    low: Mapping[str, int]
    """The same by name, at the lower ends of the ranges of the constants."""
    high: Mapping[str, int]
    """The same by name, at the upper ends."""


@dataclass(frozen=True)
class Explanation(Drawn, room="explain", table="ranks.lines"):
    """The account of one configuration: every byte of every pipeline rank, the verdict and the time of a step.

    Sizes are in bytes, times in seconds.

    Raises FrozenInstanceError where a field is set, and InputError where ``plot`` cannot draw or write.

    Example:
        >>> account = shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
        >>> account.verdict, account.peak_bytes, account.peak.by_role["optimizer"]
        ('fits', 29367792640, 6024867840)
    """

    model: Model
    """Dimensions of the model."""
    gpu: Gpu
    """Figures of the GPU."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    recompute: str
    """Recompute mode."""
    choices: Mapping[str, str]
    """Option of every kernel axis."""
    inputs: Mapping[str, int]
    """Every parameter by name."""
    parameters: Parameters
    """Parameters of the model, ``total`` and ``active``: those that one token meets."""
    peak_rank: int
    """Pipeline rank whose process takes most of its GPU; the first of several."""
    peak_bytes: int
    """Bytes that it keeps at its peak."""
    verdict: str
    """fits (it runs out with a probability below the accepted risk), uncertain, or out of memory (certain)."""
    rule_80: str
    """fits, uncertain or out of memory by the published 80 % rule."""
    reason: str
    """Why that rank and not another: the role with the largest excess over the other end."""
    ranks: tuple[RankAccount, ...]
    """One account for each pipeline rank."""
    process: Process
    """Memory of the process on the peak rank, in bytes."""
    run_out_probability: float
    """Probability that the process on the peak rank runs out of memory, from how known runs went."""
    risk: float
    """Probability below which a layout is said to fit."""
    anchor: Anchor | None
    """The measured run that fixed the constants of ``process``; null without one."""
    time: StepTime | None
    """Time of a step; null where a figure of the machine is not known."""
    placement: Placement | None
    """Where nodes with measured links go; null without such links."""
    stages: tuple[StageOnGpu, ...]
    """Stages, each with its own GPUs; none where all GPUs are alike."""
    slicing: Slicing | None
    """Best lengths of the slices of a sequence; null without slices."""
    time_unknown: str
    """Why the time is not known; empty where it is."""
    published: tuple[PublishedEstimate, ...]
    """Estimates of published formulas, of models that they are about."""
    host_bytes: int
    """Bytes on the host of a server, of the server whose GPUs offload most; 0 where nothing is offloaded."""
    cluster: Hidden[Cluster]
    """GPUs, servers and network."""
    switches: Hidden[Mapping[str, int]]
    """Switches of the machine by name: overlaps of communication with computation."""
    outside: tuple[Outside, ...] = ()
    """Peaks outside of a step; none where they are not counted."""
    replay: Replay | None = None
    """Steps of the peak rank through PyTorch's allocator, as ``shardmath explain`` does; null without."""
    replay_unknown: str = ""
    """Why they are not replayed; empty where they are, or nobody asked."""
    pinned_bytes: int | None = None
    """Bytes that pinned blocks on the host of the peak rank have beyond what is offloaded in them, as ``shardmath
    explain`` counts them; null without, and where they are not known."""

    @property
    def framework(self) -> str:
        """Name of the implementation alone."""
        return self.implementation.partition(" ")[0]

    @property
    def moments_counted(self) -> bool:
        """False if of all moments of a step only those of the loss are in the totals, beside saved tensors."""
        return self.choices["peak"] != "saved"

    @property
    def peak(self) -> RankAccount:
        """The rank whose process takes most of its GPU; the first of several."""
        return self.ranks[self.peak_rank]

    @property
    def layers(self) -> tuple[int, ...] | None:
        """Layers of every chunk in the order of the model, where GPUs of stages differ; None where all are alike."""
        return in_chunks([stage.layers for stage in self.stages], self.inputs) or None

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the allocator reserves on the peak rank: those of the replay, or else of the formula."""
        return self.process.reserved if self.replay is None else self.replay.reserved_bytes

    def memory_of(self, rank: RankAccount) -> int:
        """Return bytes of memory of a GPU of a rank.

        Example:
            >>> account = shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
            >>> account.memory_of(account.peak) - account.peak.total
            56531553280
        """
        return self.stages[rank.rank].gpu_memory if self.stages else self.gpu.memory_bytes


def explanation(configuration: Configuration) -> Explanation:
    """Account for every byte that each pipeline rank keeps, and for the time of a step.

    Raises InputError for an offload that the servers' hosts cannot hold.

    Example:
        >>> account = shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
        >>> account.verdict, account.peak_bytes
        ('fits', 29367792640)
    """
    job, anchor = configuration.job, configuration.anchor
    values = [job.on_rank(rank) for rank in range(job.values["pipeline_parallel"])]
    numbers = [terms_at(job.evaluator.terms, own) for own in values]
    host = fullest_host(job, numbers)
    ranks = tuple(map(_account, values, numbers))
    peak = ranks[max(range(len(ranks)), key=lambda rank: (
        fullness_of(numbers[rank], values[rank]["gpu_memory"]), -rank))]
    time, unknown = configuration.time()
    process = _process(job.evaluator, values[peak.rank], numbers[peak.rank], anchor is not None)
    return Explanation(
        job.model, job.gpu, job.evaluator.title(), job.recompute, dict(job.evaluator.choices), job.values,
        _parameters(numbers[0]), peak.rank, peak.total, peak.verdict, peak.rule_80, _reason(ranks, peak),
        ranks, process, run_out_probability(
            process.allocated, process.total, values[peak.rank]["gpu_memory"]), risk_of(job.values),
        anchor, time,
        configuration.placement if time is not None else None, configuration.stages(time),
        slicing(job.evaluator, {**job.values, **configuration.machine_values()}, time) if time is not None else None,
        unknown,
        _published(job.evaluator, job.values), host, configuration.cluster, configuration.switches(),
        outside_of_a_step(numbers[peak.rank], peak.verdict),
    )


def _reason(ranks: Sequence[RankAccount], peak: RankAccount) -> str:
    """Name the role with the largest excess over the other end."""
    if len(ranks) == 1:
        return "the only pipeline rank"
    other = ranks[-1] if peak is ranks[0] else ranks[0]
    role = max(ROLES, key=lambda name: peak.by_role[name] - other.by_role[name])
    excess = (peak.by_role[role] - other.by_role[role]) / 2**30
    return f"{excess:.2f} GiB more of {role} than on rank {other.rank}"


explain = asked_with("explain", configured_on_any, explanation)


def _parameters(numbers: Mapping[str, int | Fraction]) -> Parameters:
    return Parameters(*(int(numbers[f"model.{name}_parameters"]) for name in ("all", "active")))


def _process(
    evaluator: Evaluator, values: Mapping[str, int], numbers: Mapping[str, int | Fraction], fixed: bool,
) -> Process:
    """Return the memory of the process on the peak rank, in bytes; constants of a measured run have no range."""
    def parts(numbers: Mapping[str, int | Fraction]) -> dict[str, int]:
        return {name: int(numbers[f"process.{name}"]) for name in ("allocated", "reserved", "communicators", "total")}

    def at(place: int) -> dict[str, int]:
        ends = {name: values[name] * ends[place] // 1000 for name, ends in OVERHEADS.items()}
        ends["reserved_per_mille"] = int(numbers[f"process.{('low', 'high')[place]}"])
        return parts(terms_at(evaluator.terms, {**values, **ends}))

    own = parts(numbers)
    low, high = (own, own) if fixed else (at(0), at(1))
    return Process(own["allocated"], own["reserved"], own["total"], own["communicators"], low, high)


def every_line(evaluator: Evaluator, values: Mapping[str, int]) -> tuple[Line, ...]:
    """List all that adds up to the total of one rank, also what is empty with these values."""
    numbers = terms_at(evaluator.terms, values)
    return tuple(_lines(numbers, _site(numbers)))


def _lines(numbers: Mapping[str, int | Fraction], site: str) -> Iterator[Line]:
    for name, size in numbers.items():
        if name in LINES and exists(name, site):
            component, role, *_ = LINES[name]
            yield Line(name, component, role, _whole(size))


def _account(values: Mapping[str, int], numbers: Mapping[str, int | Fraction]) -> RankAccount:
    site = _site(numbers)
    lines = [line for line in _lines(numbers, site) if line.bytes]
    by_role = {role: sum(line.bytes for line in lines if line.role == role) for role in ROLES}
    total = int(numbers["stage.total"])
    memory = values["gpu_memory"]
    return RankAccount(
        values["pipeline_rank"], int(numbers["stage.all_parameters"]),
        int(numbers["in_flight"] if "in_flight" in numbers else values["in_flight"]), site,
        tuple(lines),
        {role: int(size) for role, size in by_role.items()}, total, total / memory,
        verdict_of(total, numbers, RANK_LIMITS), rule_of(total, memory), int(numbers[RANK_LIMITS[0]]),
        {name: int(numbers[f"stage.{name}.all"]) for name in SITES if f"stage.{name}.all" in numbers},
        math.ceil(numbers.get(ON_HOST, 0)),
    )


def exists(term: str, site: str) -> bool:
    """Tell whether what a line counts exists at a moment of a step."""
    _, _, moment, held = LINES[term]
    return moment in ("", site) and HELD.index(SITES[site][1]) <= HELD.index(held)


def _site(numbers: Mapping[str, int | Fraction]) -> str:
    """Return the moment of a step at which the rank peaks; the first of several."""
    names = [name for name in SITES if f"stage.{name}.all" in numbers]
    best = max(names, key=lambda name: numbers[f"stage.{name}.all"], default="after_forward")
    return best if numbers.get(f"stage.{best}.all") == numbers["stage.moment"] else "after_forward"


def _whole(number: int | Fraction) -> int | Fraction:
    return int(number) if number.denominator == 1 else number


def _published(evaluator: Evaluator, values: Mapping[str, int]) -> tuple[PublishedEstimate, ...]:
    """Return the estimates of the published sets that are about the implementation, for models that they are about."""
    if any(evaluator.choices[axis] != option for axis, option in _PUBLISHED_ABOUT.items()):
        return ()
    known = {**values, "pipeline_rank": 0}
    estimates = []
    for name, (title, about) in PUBLISHED.items():
        if about != evaluator.implementation:
            continue
        numbers = terms_at(import_module(f"shardmath.generated.{name}"), known)
        if f"{name}.static" in numbers:  # else the set is about activations alone
            total = _whole(numbers[f"{name}.total"])
            estimates.append(PublishedEstimate(name, title, total, rule_of(total, values["gpu_memory"])))
    return tuple(estimates)


#: Published formulas are about dense Llama models.
_PUBLISHED_ABOUT = {"heads": "grouped", "layers": "dense", "mlp": "swiglu"}
