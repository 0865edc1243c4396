"""Memory of a process beyond the allocator's peak: machine constants, each with its range and source.

They are rough, and they are the only numbers that a measured run may replace. The verdict follows from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Expr, Gt, Integer

from .choices import absent_values
from .functions import CeilDiv, FloorDiv, Iverson, Max, Min
from .implementations import Implementation
from .parallel.dispatch import buffer_bytes
from .parallel.mesh import PLACED
from .parameters import BY_LETTER, symbol, symbols
from .reserved import PER, SHARE, add_reserved, most_allocated, usually_reserved, weighted
from .run_out import PARTS
from .sources import BY_KEY
from .terms import TermSet, product, total
from .verdict import FITS, HOLDS, MOST

c, p, D, e = symbols("c p D e")
M, room, extra, slack, context, nccl = symbols("M room extra slack context nccl")


@dataclass(frozen=True)
class Overhead:
    """One constant: its parameter's letter, ends of the usual range (per 1000 of its value), meaning and source."""

    letter: str
    low: int
    high: int
    meaning: str
    source: str

    @property
    def typical(self) -> int:
        """The value without a measurement: the parameter's default."""
        default = BY_LETTER[self.letter].default
        assert default is not None
        return default

    def __post_init__(self) -> None:
        """Refuse a constant that cites nothing or whose value is outside of its range."""
        if self.source not in BY_KEY or not self.low <= 1000 <= self.high:
            raise ValueError(f"overhead {self.letter}: {self.low} <= 1000 <= {self.high}, {self.source}")


OVERHEADS: tuple[Overhead, ...] = (
    Overhead("extra", 1000, 1000, "allocated beyond the ledger; only a measured run says how much", "pytorch"),
    Overhead("slack", 1000, 1000, "reserved of 1000 bytes that the formula of reserved memory has", "pytorch"),
    Overhead("context", 750, 1500, "CUDA context and loaded kernels of a process, unless its GPU was measured",
             "pytorch"),
    Overhead("nccl", 0, 1750, "buffers of one NCCL communicator, outside of the allocator", "nccl"),
)

#: Memory of a process that no formula has.
UNCOUNTED: tuple[str, ...] = (
    "user buffers of Transformer Engine (overlap of tensor parallelism)",
    "private pools of CUDA graphs and of torch.compile",
    "buffers that are registered with NCCL, and its channels by transport and version",
)


def communicators(absent: Mapping[Expr, Expr]) -> Expr:
    """Count a rank's communicators: one per parallel dimension of several ranks; ``absent`` ones have one rank."""
    degrees = (degree for degree in (*(rule.degree for rule in PLACED), p, D * c, e) if degree not in absent)
    return total(*(Iverson(Gt(degree, Integer(1))) for degree in degrees))


def reserved_of(allocated: Expr, usual: Expr) -> Expr:
    """Return what the caching allocator reserves, from what it usually does for so many allocated bytes."""
    return Max(allocated, CeilDiv(product(usual, slack), PER))


def add_process(terms: TermSet, implementation: Implementation) -> None:
    """Add the terms of allocated, reserved and process memory, and of what they leave to a rank, in bytes."""
    allocated = terms.add("process.allocated", total(terms["stage.total"].symbol, extra), "bytes",
                          "rank r, allocated: torch.cuda.max_memory_allocated")
    usual = add_reserved(terms, allocated, implementation.reserved)
    reserved = terms.add("process.reserved", reserved_of(allocated, usual), "bytes",
                         "rank r, reserved by the caching allocator: torch.cuda.max_memory_reserved")
    groups = terms.add("process.communicators", communicators(absent_values(implementation.choices)), "communicators",
                       "NCCL communicators that rank r is in")
    exchanged = buffer_bytes(implementation.choices)
    if exchanged != 0:
        exchanged = terms.add("process.dispatch", exchanged, "bytes",
                              "rank r, buffers of DeepEP or HybridEP outside of the caching allocator")
    beside = terms.add("process.beside", total(context, product(groups, nccl), exchanged), "bytes",
                       "rank r, taken of the GPU beside the caching allocator")
    terms.add("process.total", total(reserved, beside), "bytes", "rank r, taken of the GPU, as nvidia-smi shows it")
    terms.add("process.left", product(room, FloorDiv(M, Integer(PARTS))) - beside, "bytes",
              "left to the caching allocator by a process that fits")
    terms.add("process.usual_left", FloorDiv(product(PER, terms["process.left"].symbol), slack), "bytes",
              "the most that the formula of reserved memory may have so that a process fits")
    terms.add(FITS, _most(terms, weighted(implementation.reserved.more_in(terms))), "bytes",
              "the most that rank r may allocate so that its process fits")
    terms.add(HOLDS, M - extra, "bytes", "the most that a peak may be so that it can be allocated")


def _most(terms: TermSet, more: Expr) -> Expr:
    """Return the last byte of a total whose process fits; ``more`` is 1000 times what is reserved beyond its share."""
    left, usual, share = (terms[name].symbol for name in ("process.left", "process.usual_left", SHARE))
    return Min(left, most_allocated(usual, share, more)) - extra


def add_fullest(terms: TermSet, implementation: Implementation, ranks: Mapping[str, Expr]) -> None:
    """Add the largest process of all ranks, and the most that the peak may be so that all of them fit.

    Only the bytes of streams and of a moment of the step differ between ``ranks`` that can be the peak's, besides
    their totals.
    """
    more, beside = implementation.reserved.more_in(terms), terms["process.beside"].symbol
    if more:
        totals = {terms[f"{name}.total"].symbol: weighted({
            _copied(terms, name, size, rank): share for size, share in more.items()}) for name, rank in ranks.items()}
    else:
        totals = {terms["peak"].symbol: weighted(more)}
    processes, margins = [], []
    for size, own in totals.items():
        allocated = total(size, extra)
        usual = usually_reserved(allocated, terms[SHARE].symbol, own)
        processes.append(total(reserved_of(allocated, usual), beside))
        margins.append(_most(terms, own) - size)
    terms.add("process.peak", Max(*processes), "bytes", "the rank whose process takes most of its GPU")
    most = terms[FITS].symbol if not more else terms["peak"].symbol + Min(*margins)
    terms.add(MOST, most, "bytes", "the most that the peak may be so that the processes of all ranks fit")


def _copied(terms: TermSet, name: str, size: Expr, rank: Expr) -> Expr:
    """Return the bytes of a term on a rank; those of rank r where all ranks have as many."""
    terms.at(name, [str(size)], {symbol("r"): rank})
    copy = f"{name}.{str(size).removeprefix('stage.')}"
    return terms[copy].symbol if copy in terms else size
