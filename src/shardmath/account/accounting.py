"""Account for one configuration: bytes by component and role for every pipeline rank, and the verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any

from shardmath.account.anchor import Anchor
from shardmath.account.configured import Configuration, asked_with, configured
from shardmath.account.time import StepTime
from shardmath.compiler.evaluators import Evaluator
from shardmath.generated.definitions import (
    END_COMPONENTS,
    GROUPS,
    OVERHEADS,
    PUBLISHED,
    ROLES,
    SITES,
    VERDICTS,
    verdict,
)
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model


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

    ``parameters`` counts elements of weights of every kind, without padding. ``in_flight`` counts chunks of layers;
    ``site`` is the moment of a step at which the rank peaks. ``moments`` has the activations and transients of every
    moment that has transients, by name.
    """

    rank: int
    parameters: int
    in_flight: int
    site: str
    lines: tuple[Line, ...]
    by_role: Mapping[str, int]
    total: int
    share: float
    verdict: str
    moments: Mapping[str, int]


@dataclass(frozen=True)
class Parameters:
    """Parameters of the model as it is trained, further predictions included; the vocabulary is not padded.

    ``active`` are those that one token meets: of the routed experts those that it is sent to.
    """

    total: int
    active: int


@dataclass(frozen=True)
class PublishedEstimate:
    """Estimate of a published set of formulas for the same configuration, in bytes."""

    name: str
    title: str
    total: int | Fraction
    verdict: str


@dataclass(frozen=True)
class Process:
    """Memory of the process on the peak rank, in bytes.

    ``allocated`` is what tensors take at the peak, ``reserved`` what the caching allocator asks for to hold
    them, ``total`` what the GPU shows as used; ``low`` and ``high`` are the same at the ends of the ranges of
    the constants, by name.
    """

    allocated: int
    reserved: int
    total: int
    communicators: int
    low: Mapping[str, int]
    high: Mapping[str, int]


@dataclass(frozen=True)
class Explanation:
    """The account of one configuration.

    ``inputs`` has every parameter by name, ``choices`` the option of every kernel axis, ``ranks`` one account per
    pipeline rank; ``switches`` are those of the machine: what is overlapped with what. ``anchor`` is the measured run
    that fixed the constants of ``process``, if any did. ``time`` is None where a figure of the machine is not known;
    ``time_unknown`` says which.
    """

    model: Model
    gpu: Gpu
    implementation: str
    recompute: str
    inputs: Mapping[str, int]
    ranks: tuple[RankAccount, ...]
    published: tuple[PublishedEstimate, ...]
    process: Process
    choices: Mapping[str, str]
    switches: Mapping[str, int]
    parameters: Parameters
    anchor: Anchor | None = None
    time: StepTime | None = None
    time_unknown: str = ""

    @property
    def moments_counted(self) -> bool:
        """False if of all moments of a step only those of the loss are in the totals, beside saved tensors."""
        return self.choices["peak"] != "saved"

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
            "choices": dict(self.choices),
            "inputs": dict(self.inputs),
            "parameters": asdict(self.parameters),
            "peak_rank": self.peak.rank,
            "peak_bytes": self.peak.total,
            "verdict": self.peak.verdict,
            "reason": self.reason,
            "ranks": [
                asdict(account) | {"lines": [asdict(line) | {"bytes": plain(line.bytes)} for line in account.lines]}
                for account in self.ranks
            ],
            "process": asdict(self.process),
            "anchor": None if self.anchor is None else asdict(self.anchor),
            "time": None if self.time is None else self.time.to_dict(),
            "time_unknown": self.time_unknown,
            "published": [asdict(item) | {"total": plain(item.total)} for item in self.published],
        }


def explanation(configuration: Configuration) -> Explanation:
    """Account for every byte that each pipeline rank keeps, and for the time of a step."""
    found, fixed_by = configuration.job, configuration.anchor
    values = [found.on_rank(rank) for rank in range(found.values["pipeline_parallel"])]
    numbers = [_numbers(found.evaluator, own) for own in values]
    ranks = tuple(map(_account, values, numbers))
    fullest = max(ranks, key=lambda account: account.total).rank
    published = _published(found.evaluator, found.values)
    time, unknown = configuration.time()
    return Explanation(
        found.model, found.gpu, found.evaluator.name, found.recompute, found.values, ranks, published,
        _process(found.evaluator, values[fullest], numbers[fullest], fixed_by is not None),
        dict(found.evaluator.choices), configuration.switches(), _parameters(numbers[0]), fixed_by, time, unknown,
    )


explain = asked_with("explain", configured, explanation)


def verdict_of(estimate: int | Fraction, gpu_memory: int) -> str:
    """The name of the verdict on an estimate; both in bytes."""
    return VERDICTS[verdict(estimate, gpu_memory)][0]


def plain(number: int | Fraction) -> int | float:
    """A number for JSON: an integer where it is one."""
    return int(number) if number == int(number) else float(number)


def _parameters(numbers: Mapping[str, Fraction]) -> Parameters:
    return Parameters(*(int(numbers[f"model.{name}_parameters"]) for name in ("all", "active")))


def _process(
    evaluator: Evaluator, values: Mapping[str, int], numbers: Mapping[str, Fraction], fixed: bool,
) -> Process:
    """Return the memory of the process on the peak rank, in bytes; constants of a measured run have no range."""
    def parts(numbers: Mapping[str, Fraction]) -> dict[str, int]:
        return {name: int(numbers[f"process.{name}"]) for name in ("allocated", "reserved", "communicators", "total")}

    def at(place: int) -> dict[str, int]:
        return parts(_numbers(evaluator, {**values, **{name: ends[place] for name, ends in OVERHEADS.items()}}))

    own = parts(numbers)
    low, high = (own, own) if fixed else (at(0), at(1))
    return Process(own["allocated"], own["reserved"], own["total"], own["communicators"], low, high)


def _numbers(evaluator: Evaluator, values: Mapping[str, int]) -> dict[str, Fraction]:
    """Every term of one rank by name, exact."""
    module = evaluator.terms
    numbers: dict[str, Fraction] = module.terms(**{name: Fraction(values[name]) for name in module.INPUTS})
    return numbers


def every_line(evaluator: Evaluator, values: Mapping[str, int]) -> tuple[Line, ...]:
    """List all that adds up to the total of one rank, also what is empty with these values."""
    numbers = _numbers(evaluator, values)
    return tuple(_lines(numbers, _site(numbers)))


def _lines(numbers: Mapping[str, Fraction], site: str) -> Iterator[Line]:
    held = SITES[site][1]
    for name, size in numbers.items():
        component, kind = line_of(name)
        role = "transient" if kind == site else kind
        if role in ROLES and not (role == "activation" and is_freed(component, held)):
            yield Line(name, component, role, _whole(size))


def _account(values: Mapping[str, int], numbers: Mapping[str, Fraction]) -> RankAccount:
    site = _site(numbers)
    lines = [line for line in _lines(numbers, site) if line.bytes]
    by_role = {role: sum((Fraction(line.bytes) for line in lines if line.role == role), Fraction(0)) for role in ROLES}
    total = int(numbers["stage.total"])
    memory = values["gpu_memory"]
    return RankAccount(
        values["pipeline_rank"], int(numbers["stage.all_parameters"]),
        int(numbers["in_flight"] if "in_flight" in numbers else values["in_flight"]), site,
        tuple(lines),
        {role: int(size) for role, size in by_role.items()}, total, total / memory, verdict_of(total, memory),
        {name: int(numbers[f"stage.{name}.all"]) for name in SITES if f"stage.{name}.all" in numbers},
    )


def line_of(term: str) -> tuple[str, str]:
    """Component and kind of a term: a role, or the moment at which it lives; the kind of what is no line is empty."""
    group, _, rest = term.partition(".")
    component, _, kind = rest.rpartition(".")
    if group != "stage" or not component:
        return component, ""
    return component, kind if kind in SITES else kind.removeprefix(next(filter(kind.startswith, GROUPS)))


def is_freed(component: str, held: str) -> bool:
    """Tell whether a component's saved tensors are freed at the moment of ``held``."""
    return held == "NOTHING" or component in _FREED.get(held, ())


#: Components whose saved tensors are freed by the moments at which only some others exist.
_FREED: Mapping[str, Collection[str]] = {"LAYERS": END_COMPONENTS, "HEAD": ("loss",)}


def _site(numbers: Mapping[str, Fraction]) -> str:
    """The moment of a step at which the rank peaks; the first of several."""
    names = [name for name in SITES if f"stage.{name}.all" in numbers]
    best = max(names, key=lambda name: numbers[f"stage.{name}.all"], default="after_forward")
    return best if numbers.get(f"stage.{best}.all") == numbers["stage.moment"] else "after_forward"


def _whole(number: Fraction) -> int | Fraction:
    return int(number) if number.denominator == 1 else number


def _published(evaluator: Evaluator, values: Mapping[str, int]) -> tuple[PublishedEstimate, ...]:
    """The estimates of the published sets that are about the implementation, for models that they are about."""
    if any(evaluator.choices[axis] != option for axis, option in _PUBLISHED_ABOUT.items()):
        return ()
    known = {**values, "pipeline_rank": 0}
    estimates = []
    for name, (title, about) in PUBLISHED.items():
        if about != evaluator.implementation:
            continue
        module = import_module(f"shardmath.generated.{name}")
        numbers = module.terms(**{key: Fraction(known[key]) for key in module.INPUTS})
        if f"{name}.static" in numbers:  # else the set is about activations alone
            total = _whole(numbers[f"{name}.total"])
            estimates.append(PublishedEstimate(name, title, total, verdict_of(total, values["gpu_memory"])))
    return tuple(estimates)


#: Published formulas are about dense Llama models.
_PUBLISHED_ABOUT = {"heads": "grouped", "layers": "dense", "mlp": "swiglu"}
