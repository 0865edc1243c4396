"""Configurations side by side: every term of their accounts, and each difference as a sum over tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from shardmath.account.accounting import Explanation, RankAccount, explanation, plain
from shardmath.account.configured import Configuration
from shardmath.commands.compare.causes import Causes
from shardmath.commands.compare.changes import Change, changes
from shardmath.commands.compare.published import PublishedSide, beside_published
from shardmath.commands.compare.tensors import Part, Rank
from shardmath.errors import InputError
from shardmath.generated.definitions import ROLES

#: What configurations are called in tables.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Side:
    """One configuration: its letter, what was asked for, its account, and that of the rank that is compared."""

    name: str
    asked: str
    explanation: Explanation
    account: RankAccount

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        time = self.explanation.time
        return {
            "name": self.name, "asked": self.asked, "model": self.explanation.model.name,
            "gpu": self.explanation.gpu.name, "implementation": self.explanation.implementation,
            "recompute": self.explanation.recompute, "inputs": dict(self.explanation.inputs),
            "choices": dict(self.explanation.choices), "rank": self.account.rank, "site": self.account.site,
            "total_bytes": self.account.total, "share": self.account.share, "verdict": self.account.verdict,
            "time": None if time is None else time.to_dict(),
        }


@dataclass(frozen=True)
class TermSizes:
    """One component and role on every side; bytes, 0 where a side has no such line."""

    component: str
    role: str
    bytes: tuple[int | Fraction, ...]

    @property
    def differs(self) -> bool:
        """Tell whether the sides have different sizes."""
        return len(set(self.bytes)) > 1


@dataclass(frozen=True)
class TensorDifference:
    """One tensor that has another size on a side than on the first, in bytes of the rank.

    ``before`` and ``after`` are 0 where the tensor does not exist; its formulas, ``size_before`` and ``size_after``,
    are then empty. ``causes`` are names of changes that explain it.
    """

    component: str
    role: str
    tensor: str
    meaning: str
    source: str
    before: int | Fraction
    after: int | Fraction
    size_before: str
    size_after: str
    causes: tuple[str, ...]

    @property
    def bytes(self) -> int | Fraction:
        """After minus before."""
        return self.after - self.before


@dataclass(frozen=True)
class Difference:
    """All that a side has more or less than the first; the bytes of its tensors add up to ``bytes``."""

    side: int
    bytes: int
    tensors: tuple[TensorDifference, ...]


@dataclass(frozen=True)
class Comparison:
    """Two or more configurations, the first of which the others are compared with.

    ``changes`` are the inputs that differ, ``terms`` every component and role, ``differences`` one for each side
    after the first. ``published`` are sets of published formulas beside the first configuration.
    """

    sides: tuple[Side, ...]
    changes: tuple[Change, ...]
    terms: tuple[TermSizes, ...]
    differences: tuple[Difference, ...]
    published: tuple[PublishedSide, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; bytes are integers except for shares that are not whole."""
        return {
            "sides": [side.to_dict() for side in self.sides],
            "changes": [asdict(item) for item in self.changes],
            "terms": [
                {"component": item.component, "role": item.role, "bytes": [plain(size) for size in item.bytes]}
                for item in self.terms
            ],
            "differences": [
                {
                    "from": self.sides[0].name, "to": self.sides[item.side].name, "bytes": item.bytes,
                    "tensors": [
                        asdict(one) | {name: plain(getattr(one, name)) for name in ("before", "after", "bytes")}
                        for one in item.tensors
                    ],
                }
                for item in self.differences
            ],
            "published": [item.to_dict() for item in self.published],
        }


def compared(
    asked: Sequence[tuple[str, Configuration]], rank: int | None = None, published: bool = False,
) -> Comparison:
    """Compare configurations, each with what was asked for in words, on pipeline rank ``rank`` or on their peak ranks.

    ``published`` sets published formulas beside the first of them. Raises InputError for a rank that one of them does
    not have, for more configurations than letters, and where no publication is about the first one.
    """
    if len(asked) > len(LETTERS):
        raise InputError("against", f"{len(asked) - 1} configurations", f"must be at most {len(LETTERS) - 1}")
    sides = tuple(_side(*one, letter, rank) for one, letter in zip(asked, LETTERS, strict=False))
    ranks = [Rank(configuration.job, side.account)
             for (_, configuration), side in zip(asked, sides, strict=True)]
    return Comparison(
        sides, changes([(side.explanation, side.account) for side in sides]), _terms(sides),
        tuple(_difference(ranks[0], ranks[place], place) for place in range(1, len(ranks))),
        beside_published(asked[0][1]) if published else (),
    )


def _side(asked: str, configuration: Configuration, letter: str, rank: int | None) -> Side:
    found = explanation(configuration)
    if rank is not None and not 0 <= rank < len(found.ranks):
        last = len(found.ranks) - 1
        rule = f"must be a pipeline rank of every configuration, and {letter} has 0 to {last}"
        raise InputError("rank", rank, rule, str(min(max(rank, 0), last)))
    return Side(letter, asked, found, found.peak if rank is None else found.ranks[rank])


def _terms(sides: Sequence[Side]) -> tuple[TermSizes, ...]:
    """Every component and role of some side, by role and then in the order of the accounts."""
    keys = dict.fromkeys((line.component, line.role) for side in sides for line in side.account.lines)
    sizes: list[dict[tuple[str, str], int | Fraction]] = [{} for _ in sides]
    for found, side in zip(sizes, sides, strict=True):
        for line in side.account.lines:
            key = line.component, line.role
            found[key] = found.get(key, 0) + line.bytes
    return tuple(
        TermSizes(*key, tuple(found.get(key, 0) for found in sizes))
        for key in sorted(keys, key=lambda key: ROLES.index(key[1]))
    )


def _difference(before: Rank, after: Rank, place: int) -> Difference:
    causes = Causes(before, after)
    of_before, of_after = _by_tensor(before), _by_tensor(after)
    found = []
    for key in dict.fromkeys((*of_before, *of_after)):
        one, two = of_before.get(key), of_after.get(key)
        sizes = [0 if part is None else part.bytes for part in (one, two)]
        if sizes[0] == sizes[1]:
            continue
        part = two if one is None else one
        assert part is not None
        found.append(TensorDifference(
            *key, part.meaning, "" if part.tensor is None else part.tensor.source, sizes[0], sizes[1],
            "" if one is None else before.text(one.expression), "" if two is None else after.text(two.expression),
            causes.of(one, two),
        ))
    found.sort(key=lambda item: ROLES.index(item.role))
    return Difference(place, after.account.total - before.account.total, tuple(found))


def _by_tensor(rank: Rank) -> Mapping[tuple[str, str, str], Part]:
    """The parts of a rank by component, role and tensor; a tensor that is in several lines is one part."""
    from shardmath.symbolic.terms import total

    found: dict[tuple[str, str, str], Part] = {}
    for part in rank.parts:
        key = part.component, part.role, part.name
        if key in found:
            first = found[key]
            part = replace(first, bytes=first.bytes + part.bytes,  # noqa: PLW2901
                           expression=total(first.expression, part.expression))
        found[key] = part
    return found
