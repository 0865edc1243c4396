"""Work of a component in a step: matrix products, streams through memory, and transfers between ranks.

A matrix of weights says by itself what it is multiplied with (``Tensor.tokens``); here stands the rest. As with
tensors, what a parallel dimension does to a row is not written here but follows from its dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from sympy import Expr, Integer

from .dimension import ONE, Dimension
from .sources import BY_KEY

#: No passes.
NONE = Integer(0)
#: A backward pass takes two products: the gradients of the input and of the other factor.
BOTH_GRADIENTS = 2


class Ranks(StrEnum):
    """Groups of ranks that transfers of several components are between (``parallel.rules.GroupOfRanks``)."""

    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"
    EXPERT_TENSOR = "expert_tensor"
    EXPERT_ALL = "expert_all"


class Kernel(Enum):
    """Kernel of a matrix product; it determines the share of peak."""

    MATMUL = "matmul"
    ATTENTION = "attention"


@dataclass(frozen=True, eq=False)
class Product:
    """A matrix product in 16 bits that is no row of weights: ``rows`` x ``inner`` times ``inner`` x ``columns``.

    ``share`` is the part of it that is computed (half, if a kernel skips what a causal mask hides), ``backward``
    the number of such products in the backward pass. ``weights`` says that one factor is a matrix of weights, which
    may be frozen.
    """

    name: str
    module: str
    rows: tuple[Dimension, ...]
    inner: tuple[Dimension, ...]
    columns: tuple[Dimension, ...]
    source: str
    meaning: str
    kernel: Kernel = Kernel.MATMUL
    share: Expr = ONE
    backward: int = BOTH_GRADIENTS
    weights: bool = False
    when: Expr = ONE
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a row that cites nothing."""
        _refuse_unknown(self.name, self.source)


@dataclass(frozen=True, eq=False)
class Stream:
    """Memory traffic of kernels without matrix products.

    ``forward`` and ``backward`` are bytes read and written for every element of ``shape``, ``kernels`` the kernels
    that are launched for it in the forward pass, and as many again in the backward pass.
    """

    name: str
    module: str
    shape: tuple[Dimension, ...]
    forward: int
    backward: int
    source: str
    meaning: str
    kernels: int = 1
    when: Expr = ONE
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a row that cites nothing."""
        _refuse_unknown(self.name, self.source)


@dataclass(frozen=True, eq=False)
class Transfer:
    """A collective of the group ``ranks``, by what it makes whole: ``bytes`` for every element of ``shape``.

    ``forward`` and ``backward`` count passes in which each of n ranks sends (n - 1)/n of that, as an all-gather, a
    reduce-scatter and an all-to-all do; an all-reduce takes two. ``hidden`` are further passes of the backward
    pass whose bytes products always hide, ``beside`` is the kernel that can run at the same time as the others,
    ``kernels`` are launched for it in each pass. ``prefetched`` are switches, for each direction, with which the
    collective runs beside all that its component computes. ``sent``: neighbours pass messages on, without a collective;
    ``pairs``: every rank sends each other one a part of its own.
    """

    name: str
    module: str
    ranks: str
    shape: tuple[Dimension, ...]
    bytes: int
    forward: Expr
    backward: Expr
    source: str
    meaning: str
    hidden: Expr = NONE
    beside: Kernel | None = None
    prefetched: tuple[Expr, Expr] | None = None
    sent: bool = False
    pairs: bool = False
    kernels: Expr = ONE
    when: Expr = ONE
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a row that cites nothing."""
        _refuse_unknown(self.name, self.source)


Work = Product | Stream | Transfer


def _refuse_unknown(name: str, source: str) -> None:
    if source not in BY_KEY:
        raise ValueError(f"row {name}: unknown source {source!r}")
