"""Memory of a process beyond the allocator's peak: machine constants, each with its range and source.

They are rough, and they are the only numbers that a measured run may replace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Expr, Gt, Integer

from .choices import absent_values
from .functions import CeilDiv, Iverson, Max
from .implementations import Implementation
from .parallel.mesh import PLACED
from .parameters import BY_LETTER, symbols
from .reserved import PER, add_reserved
from .sources import BY_KEY
from .terms import TermSet, product, total

c, p, D, e = symbols("c p D e")
extra, slack, context, nccl = symbols("extra slack context nccl")
_MIB = 2**20


@dataclass(frozen=True)
class Overhead:
    """One constant: the letter of its parameter, the ends of its usual range, what it is, and who says so."""

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
        """Refuse a constant that cites nothing or whose usual value is outside of its range."""
        if self.source not in BY_KEY or not self.low <= self.typical <= self.high:
            raise ValueError(f"overhead {self.letter}: {self.low} <= {self.typical} <= {self.high}, {self.source}")


OVERHEADS: tuple[Overhead, ...] = (
    Overhead("extra", 0, 0, "allocated beyond the ledger; only a measured run says how much", "pytorch"),
    Overhead("slack", 1000, 1000, "reserved of 1000 bytes that the formula of reserved memory has", "pytorch"),
    Overhead("context", 300 * _MIB, 600 * _MIB, "CUDA context and loaded kernels of a process", "pytorch"),
    Overhead("nccl", 0, 500 * _MIB, "buffers of one NCCL communicator, outside of the allocator", "nccl"),
)

#: Memory of a process for which no published number was at hand.
UNCOUNTED: tuple[str, ...] = (
    "handles of cuBLAS and cuDNN beside the workspaces of the ledger",
    "buffers of NVSHMEM and DeepEP",
    "user buffers of Transformer Engine (overlap of tensor parallelism)",
    "private pools of CUDA graphs and of torch.compile",
    "buffers that are registered with NCCL, and its channels by transport and version",
)


def communicators(absent: Mapping[Expr, Expr]) -> Expr:
    """Count a rank's communicators: one per parallel dimension of several ranks; ``absent`` ones have one rank."""
    degrees = (degree for degree in (*(rule.degree for rule in PLACED), p, D * c, e) if degree not in absent)
    return total(*(Iverson(Gt(degree, Integer(1))) for degree in degrees))


def add_process(terms: TermSet, implementation: Implementation) -> None:
    """Add the terms of allocated, reserved and process memory, in bytes."""
    allocated = terms.add("process.allocated", total(terms["stage.total"].symbol, extra), "bytes",
                          "rank r, allocated: torch.cuda.max_memory_allocated")
    usual = add_reserved(terms, allocated, implementation.reserved)
    reserved = terms.add("process.reserved", Max(allocated, CeilDiv(product(usual, slack), PER)), "bytes",
                         "rank r, reserved by the caching allocator: torch.cuda.max_memory_reserved")
    absent = absent_values(implementation.choices)
    groups = terms.add("process.communicators", communicators(absent), "communicators",
                       "NCCL communicators that rank r is in")
    terms.add("process.total", total(reserved, context, product(groups, nccl)), "bytes",
              "rank r, taken of the GPU, as nvidia-smi shows it")

