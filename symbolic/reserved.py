"""Reserved memory by a formula: shares of what is allocated, by implementation and kind of layout.

A replay of a step (``shardmath.steps``) has the allocator's blocks. It takes a tenth of a second, which a search cannot
pay. What the blocks come to is a share of the allocated bytes, which grows with the tensor-parallel ranks whose streams
hold freed tensors back, and a share of the tensors of one moment whose sizes or streams no freed block serves. Both are
fitted; docs/validation.md has the rows, and the errors of groups of rows that were left out of the fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Expr, Gt, Integer

from .functions import CeilDiv, FloorDiv, Iverson
from .parameters import symbol
from .sources import BY_KEY
from .terms import TermSet, product, total

t = symbol("t")
#: Kinds of layouts: names, and the tensor-parallel ranks from which on a layout is of the kind.
KINDS: dict[str, int] = {"TP 1": 1, "TP 2": 2, "TP 4 and more": 3}
PER = Integer(1000)
#: The term with the bytes usually reserved of 1000 that are allocated.
SHARE = "process.share"
#: The term with the bytes by which streams with memory of their own need more than the peak of all of them together.
BEYOND = "stage.beyond_streams"


@dataclass(frozen=True)
class Share:
    """Bytes reserved per 1000 allocated, and the ends of nine of ten measured sizes per 1000 predicted."""

    usual: int
    low: int
    high: int

    def __post_init__(self) -> None:
        """Refuse to reserve less than what is allocated, and a range that the prediction is not in."""
        if not (self.usual >= 1000 and self.low <= 1000 <= self.high):
            raise ValueError(f"share of reserved memory: {self.usual}, {self.low} to {self.high}")


@dataclass(frozen=True)
class Reserved:
    """Shares of an implementation: one for each kind of layout, and bytes per 1000 of a moment of the step.

    ``moment`` has the names of terms of a stage that are there at the moment. ``saved`` has the shares with a chosen
    peak that counts no such moment (``peak=saved``), where there is one.
    """

    shares: tuple[Share, ...]
    source: str
    moment: tuple[str, ...] = ()
    weight: int = 0
    saved: tuple[Share, ...] = ()

    def shares_in(self, terms: TermSet) -> tuple[Share, ...]:
        """Return the shares for the peak that was chosen."""
        return self.shares if not self.saved or any(f"stage.{name}" in terms for name in self.moment) else self.saved

    def more_in(self, terms: TermSet) -> dict[Expr, Expr]:
        """Return bytes on rank r that are reserved beyond what is allocated, and how many per 1000 of each.

        These are of streams with memory of their own, and of the moment. A chosen peak without moments has none.
        """
        per = {BEYOND: terms[SHARE].symbol, **{f"stage.{name}": Integer(self.weight) for name in self.moment}}
        return {terms[name].symbol: share for name, share in per.items() if name in terms}

    def __post_init__(self) -> None:
        """Refuse shares without a source or of other kinds, and a weight of no moment."""
        kinds = {len(shares) for shares in (self.shares, self.saved or self.shares)}
        if kinds != {len(KINDS)} or self.source not in BY_KEY or bool(self.moment) != bool(self.weight):
            raise ValueError(f"reserved memory: source {self.source!r}, moment {self.moment!r}, weight {self.weight}")


def by_kind(numbers: tuple[int, ...]) -> Expr:
    """Return the number of the kind of a layout, of one number for each kind."""
    first, *others = zip(KINDS.values(), numbers, strict=True)
    steps, before = [Integer(first[1])], first[1]
    for start, number in others:
        steps.append((number - before) * Iverson(Gt(t, Integer(start - 1))))
        before = number
    return total(*steps)


def add_reserved(terms: TermSet, allocated: Expr, reserved: Reserved) -> Expr:
    """Add the bytes that an implementation's allocator usually reserves, and the ends of their range; return them."""
    shares = reserved.shares_in(terms)
    for end in ("low", "high"):
        terms.add(f"process.{end}", by_kind(tuple(getattr(share, end) for share in shares)), "bytes",
                  f"{end} end of what is reserved of 1000 bytes that its formula has")
    share = terms.add(SHARE, by_kind(tuple(share.usual for share in shares)), "bytes",
                      "usually reserved of 1000 bytes that are allocated")
    usual = usually_reserved(allocated, share, weighted(reserved.more_in(terms)))
    return terms.add("process.usual", usual, "bytes", "rank r, usually reserved by the caching allocator")


def weighted(more: Mapping[Expr, Expr]) -> Expr:
    """Return the sum of products of bytes with their shares per 1000."""
    return total(*(product(share, size) for size, share in more.items()))


def usually_reserved(allocated: Expr, share: Expr, more: Expr) -> Expr:
    """Return what is usually reserved for allocated bytes, and for ``more``, 1000 times what is reserved beyond."""
    return CeilDiv(total(product(allocated, share), more), PER)


def most_allocated(usual: Expr, share: Expr, more: Expr) -> Expr:
    """Return the most that can be allocated with at most ``usual`` bytes reserved: the same turned round."""
    return FloorDiv(product(PER, usual) - more, share)
