"""A parallel dimension as a rule on dimensions: what it divides, how, and what must therefore divide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from sympy import Expr, Integer, Or, Symbol
from sympy.logic.boolalg import Boolean

from ..axis import fits
from ..dimension import Dimension
from ..dimensions import DIMENSIONS
from ..functions import Divides, Max
from ..work import Transfer


class Split(Enum):
    """How a degree of parallelism shares out a dimension."""

    EVEN = "every rank has size/degree; the degree divides the size"
    AT_LEAST_ONE = "every rank has size/degree but never less than one; degree and size divide each other"
    PADDED = "every rank has size/degree; the size is padded so that the degree divides it"


@dataclass(frozen=True)
class Rule:
    """One condition that a legal configuration meets.

    ``field`` is the letter of the parameter to blame and ``text`` says what it must do.
    """

    name: str
    field: str
    condition: Boolean
    text: str


#: Stride of ranks that follows from the place of their dimension.
BY_PLACE: Expr = Integer(0)


@dataclass(frozen=True)
class GroupOfRanks:
    """Ranks that exchange something: their number, the distance of neighbours, and what they are for.

    ``order`` sorts the groups, as documents show them. A group of a dimension has the options of that. ``sends``:
    neighbours pass messages, and not collectives alone. ``pairs`` are the choices with which every rank sends each
    other one a part of its own.
    """

    name: str
    size: Expr
    meaning: str
    order: int
    stride: Expr = BY_PLACE
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sends: bool = False
    pairs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def chosen(self, choices: Mapping[str, str]) -> bool:
        """Return True if there are such groups with these choices."""
        return fits(self.options, choices)

    def has_pairs(self, choices: Mapping[str, str]) -> bool:
        """Return True if every rank sends each other one a part of its own with these choices."""
        return bool(self.pairs) and fits(self.pairs, choices)


#: Two projections, of which the second writes to the residual stream: name and features of each.
Projections = tuple[str, Dimension, str, Dimension]


@dataclass(frozen=True)
class ParallelRule:
    """One parallel dimension: its degree, the dimensions that it splits, and where this is written.

    ``order`` sorts the dimensions, as people name them. ``rules`` are what a legal layout keeps besides the splits, and
    ``options`` restrict them to the choices that have such a dimension.

    ``place`` is for a dimension that multiplies the GPUs of a model: its place in their order, neighbours first; it
    is 0 for those that have ranks of others, or none. ``own_sequences``: its ranks work on sequences of their own;
    ``shares_sequences``: its data-parallel ranks do not.
    ``groups`` exchange something, ``projected`` are transfers for two projections, and ``over_vocabulary`` gives what
    becomes of a transfer between tensor-parallel ranks that share out the vocabulary.
    """

    name: str
    title: str
    degree: Symbol
    splits: Mapping[Dimension, Split]
    meaning: str
    source: str
    order: int
    rules: tuple[Rule, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    place: int = 0
    own_sequences: bool = False
    shares_sequences: bool = False
    groups: tuple[GroupOfRanks, ...] = ()
    projected: Callable[[Projections], tuple[Transfer, ...]] = lambda projections: ()
    over_vocabulary: Callable[[Transfer], Iterable[Transfer]] = lambda row: (row,)

    def chosen(self, choices: Mapping[str, str]) -> bool:
        """Return True if the dimension has its rules with these choices."""
        return fits(self.options, choices)

    def local_size(self, dimension: Dimension, size: Expr) -> Expr:
        """Return the share of ``size`` elements of ``dimension`` on one rank."""
        split = self.splits.get(dimension)
        if split is None:
            return size
        if split is Split.AT_LEAST_ONE:
            return Max(size / self.degree, Integer(1))
        return size / self.degree

    def condition(self, dimension: Dimension) -> Boolean | None:
        """Return the condition of an exact split of ``dimension``, or None if every split is exact."""
        split = self.splits[dimension]
        if split is Split.PADDED:
            return None
        even = Divides(self.degree, dimension.size)
        if split is Split.AT_LEAST_ONE:
            return Or(even, Divides(dimension.size, self.degree))
        return even


def local_size(dimension: Dimension, rules: tuple[ParallelRule, ...]) -> Expr:
    """Return the size of a dimension on one rank, in elements."""
    size = dimension.size
    for rule in rules:
        size = rule.local_size(dimension, size)
    return size


def local_name(dimension: Dimension) -> str:
    """Return the name of the term that is a split dimension's size on one rank."""
    return f"local.{dimension.name}"


def refuse_unknown(rules: tuple[ParallelRule, ...]) -> None:
    """Raise ValueError if a rule splits a dimension that is not in ``DIMENSIONS``."""
    for rule in rules:
        unknown = [dimension.name for dimension in rule.splits if dimension not in DIMENSIONS]
        if unknown:
            raise ValueError(f"{rule.name} splits unknown dimensions {unknown}")
