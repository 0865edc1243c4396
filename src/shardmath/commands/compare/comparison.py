"""Configurations side by side: every term of their accounts, and each difference as a sum over tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from shardmath.account.accounting import Explanation, RankAccount, explanation
from shardmath.account.configured import Configuration
from shardmath.account.time import StepTime
from shardmath.answers import Amount, Answer, Drawn, Hidden
from shardmath.commands.compare.causes import Causes
from shardmath.commands.compare.changes import Changed, changes
from shardmath.commands.compare.published import PublishedSide, beside_published
from shardmath.commands.compare.tensors import Part, Rank
from shardmath.errors import InputError
from shardmath.generated.definitions import ROLES

#: Names of configurations in tables.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Side(Answer):
    """One configuration of a comparison, on the rank that is compared."""

    name: str
    """Letter of the configuration."""
    asked: str
    """Options of the configuration, as they were typed."""
    model: str
    """Name of the model."""
    gpu: str
    """Name of the GPU."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    recompute: str
    """Recompute mode."""
    inputs: Mapping[str, int]
    """Every parameter by name."""
    choices: Mapping[str, str]
    """Option of every kernel axis."""
    rank: int
    """Pipeline rank."""
    site: str
    """Moment of a step at which the rank peaks."""
    total_bytes: int
    """Bytes of the peak."""
    share: float
    """The peak over the memory of the GPU."""
    verdict: str
    """fits, uncertain or out of memory, as the probability of running out says."""
    rule_80: str
    """The same by the published 80 % rule."""
    run_out_probability: float
    """Probability that the process on the fullest rank runs out of memory."""
    time: StepTime | None
    """Time of a step; null where a figure of the machine is not known."""
    explanation: Hidden[Explanation]
    """Account of the configuration."""
    account: Hidden[RankAccount]
    """Account of the rank."""


@dataclass(frozen=True)
class TermSizes(Answer):
    """One component and role on every side."""

    component: str
    """Component of the model."""
    role: str
    """Why the rank keeps it."""
    bytes: tuple[Amount, ...]
    """Bytes of every configuration; 0 where it has no such line."""

    @property
    def differs(self) -> bool:
        """Tell whether the sides have different sizes."""
        return len(set(self.bytes)) > 1


@dataclass(frozen=True)
class TensorDifference(Answer):
    """One tensor that has another size than in the first configuration."""

    component: str
    """Component of the model."""
    role: str
    """Why the rank keeps it."""
    tensor: str
    """Row of the ledger, or term."""
    meaning: str
    """Meaning of the row."""
    source: str
    """Key of the source."""
    before: Amount
    """Bytes in the first configuration; 0 where the tensor does not exist."""
    after: Amount
    """Bytes in the other one; 0 where the tensor does not exist."""
    size_before: str
    """Formula of its size in the first configuration; empty where the tensor does not exist."""
    size_after: str
    """Formula of its size in the other one; empty where the tensor does not exist."""
    causes: tuple[str, ...]
    """Changes that the size follows from."""
    bytes: Amount
    """After minus before: bytes that come, or go where it is negative."""


@dataclass(frozen=True)
class SideDifference(Answer):
    """Changes from the first configuration to another."""

    from_: str
    """Letter of the first configuration."""
    to: str
    """Letter of the other one."""
    bytes: int
    """Difference of the totals: the sum over the tensors."""
    tensors: tuple[TensorDifference, ...]
    """The tensors that differ."""
    side: Hidden[int]
    """Place of the other configuration among the sides."""


@dataclass(frozen=True)
class Comparison(Drawn, room="compare", table="terms"):
    """Configurations side by side, and why the others differ from the first, tensor by tensor.

    Sizes are in bytes, times in seconds.

    Raises FrozenInstanceError where a field is set, and InputError where ``plot`` cannot draw or write.

    Example:
        >>> both = shardmath.compare("llama-3.1-8b", "h100-80gb", against=[{"tensor_parallel": 2}], num_gpus=16)
        >>> both.changes[1].name, both.changes[1].values
        ('tensor_parallel', (1, 2))
    """

    sides: tuple[Side, ...]
    """The configurations, the first one first."""
    changes: tuple[Changed, ...]
    """Inputs that are not the same everywhere."""
    terms: tuple[TermSizes, ...]
    """Components and roles."""
    differences: tuple[SideDifference, ...]
    """One for each configuration but the first."""
    published: tuple[PublishedSide, ...]
    """Published formulas beside the first configuration, where they were asked for."""


def compared(
    asked: Sequence[tuple[str, Configuration]], rank: int | None = None, published: bool = False,
) -> Comparison:
    """Compare configurations, each with what was asked for in words, on pipeline rank ``rank`` or on their peak ranks.

    ``published`` sets published formulas beside the first of them. Raises InputError for a rank that one of them does
    not have, for more configurations than letters, and where no publication is about the first one.
    """
    if len(asked) > len(LETTERS):
        raise InputError("against", f"{len(asked) - 1} configurations", f"must be at most {len(LETTERS) - 1}")
    sides = tuple(_side(*question, letter, rank) for question, letter in zip(asked, LETTERS, strict=False))
    ranks = [Rank(configuration.job, side.account)
             for (_, configuration), side in zip(asked, sides, strict=True)]
    return Comparison(
        sides, changes([(side.explanation, side.account) for side in sides]), _terms(sides),
        tuple(_difference(ranks[0], ranks[place], place) for place in range(1, len(ranks))),
        beside_published(asked[0][1]) if published else (),
    )


def _side(asked: str, configuration: Configuration, letter: str, rank: int | None) -> Side:
    account = explanation(configuration)
    if rank is not None and not 0 <= rank < len(account.ranks):
        last = len(account.ranks) - 1
        rule = f"must be a pipeline rank of every configuration, and {letter} has 0 to {last}"
        raise InputError("rank", rank, rule, str(min(max(rank, 0), last)))
    own = account.peak if rank is None else account.ranks[rank]
    return Side(
        letter, asked, account.model.name, account.gpu.name, account.implementation, account.recompute, account.inputs,
        account.choices, own.rank, own.site, own.total, own.share, own.verdict, own.rule_80,
        account.run_out_probability, account.time, account, own,
    )


def _terms(sides: Sequence[Side]) -> tuple[TermSizes, ...]:
    """Return every component and role of some side, by role and then in the order of the accounts."""
    keys = dict.fromkeys((line.component, line.role) for side in sides for line in side.account.lines)
    sizes: list[dict[tuple[str, str], int | Fraction]] = [{} for _ in sides]
    for size, side in zip(sizes, sides, strict=True):
        for line in side.account.lines:
            key = line.component, line.role
            size[key] = size.get(key, 0) + line.bytes
    return tuple(
        TermSizes(*key, tuple(size.get(key, 0) for size in sizes))
        for key in sorted(keys, key=lambda key: ROLES.index(key[1]))
    )


def _difference(before: Rank, after: Rank, place: int) -> SideDifference:
    causes = Causes(before, after)
    of_before, of_after = _by_tensor(before), _by_tensor(after)
    differences = []
    for key in dict.fromkeys((*of_before, *of_after)):
        own, other = of_before.get(key), of_after.get(key)
        sizes = [0 if part is None else part.bytes for part in (own, other)]
        if sizes[0] == sizes[1]:
            continue
        part = other if own is None else own
        assert part is not None
        differences.append(TensorDifference(
            *key, part.meaning, "" if part.tensor is None else part.tensor.source, sizes[0], sizes[1],
            "" if own is None else before.text(own.expression), "" if other is None else after.text(other.expression),
            causes.of(own, other), sizes[1] - sizes[0],
        ))
    differences.sort(key=lambda item: ROLES.index(item.role))
    total = after.account.total - before.account.total
    return SideDifference(LETTERS[0], LETTERS[place], total, tuple(differences), place)


def _by_tensor(rank: Rank) -> Mapping[tuple[str, str, str], Part]:
    """Return the parts of a rank by component, role and tensor; a tensor that is in several lines is one part."""
    from shardmath.symbolic.terms import total

    parts: dict[tuple[str, str, str], Part] = {}
    for part in rank.parts:
        key = part.component, part.role, part.name
        if key in parts:
            first = parts[key]
            part = replace(first, bytes=first.bytes + part.bytes,  # noqa: PLW2901
                           expression=total(first.expression, part.expression))
        parts[key] = part
    return parts
