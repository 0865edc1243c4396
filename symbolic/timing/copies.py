"""Count what memory moves of gradients and shared-out weights beside the passes: sums, and copies for collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sympy import Eq, Expr, Gt, Integer, Symbol

from ..axis import fits
from ..functions import Iverson
from ..parallel.groups import Group
from ..parameters import symbols
from ..rates import GROUP_BY_NAME
from ..sources import BY_KEY
from ..terms import product, total

w, m, D, zero1 = symbols("w m D zero1")
#: Stands in a row for the number of ranks that share out the parameters of a group.
RANKS = Symbol("ranks", positive=True, integer=True)
#: Shares of a step's micro-batches: all but the first, and one of them.
_LATER, _ONCE = (m - 1) / m, 1 / m
#: Bytes of a 16-bit gradient.
_HALF = Integer(2)

_PLAIN = {"data_parallel": ("ddp",), "precision": ("bf16", "autocast", "fp32")}
_FSDP = {"data_parallel": ("fsdp",)}
_EVERY, _LAST = {**_FSDP, "pipeline": ("own",)}, {**_FSDP, "pipeline": ("torch",)}
_SAME_WIDTH = ("bf16", "autocast", "fp32")


@dataclass(frozen=True)
class Copy:
    """Traffic of memory: ``size`` bytes of each gradient in a micro-batch, or for each gathered byte of a weight."""

    name: str
    size: Expr
    source: str
    meaning: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a row that cites nothing."""
        if self.source not in BY_KEY:
            raise ValueError(f"row {self.name}: unknown source {self.source!r}")


#: Gradients, from the product that makes them until they are reduced.
GRADIENTS: tuple[Copy, ...] = (
    Copy("sums", 2 * w, "megatron_core", "sums of gradients, read and written by the product that adds to them",
         {"data_parallel": ("ddp", "megatron_fsdp", "deepspeed"), "precision": ("mixed", "fp16")}),
    Copy("made_apart", _HALF, "megatron_core", "16-bit gradients, read when they are added to the sums",
         {"data_parallel": ("ddp", "megatron_fsdp", "deepspeed"), "precision": ("mixed", "fp16"),
          "weight_gradient": ("separate",)}),
    Copy("fp32_sums", 2 * w + _HALF, "nanotron", "16-bit gradients added to fp32 sums by a kernel of its own",
         {"data_parallel": ("torch_ddp",)}),
    Copy("fp32_buckets", 4 * _HALF * Iverson(Gt(D, 1)) * (1 - zero1) * _ONCE, "nanotron",
         "16-bit gradients of the last micro-batch copied into buckets of DistributedDataParallel, and back",
         {"data_parallel": ("torch_ddp",)}),
    # Autograd keeps the first gradient of a step as it is; later ones are added to it.
    Copy("kept", 3 * w * _LATER, "pytorch", "gradients of all micro-batches but the first added to those kept", _PLAIN),
    Copy("buckets", 4 * w * Iverson(Gt(RANKS, 1)) * _ONCE, "pytorch",
         "sums of gradients copied into buckets of DistributedDataParallel, and back", _PLAIN),
    Copy("copied_in", _HALF + w, "pytorch", "16-bit gradients copied into the input of the reduce-scatter",
         {**_EVERY, "precision": ("mixed",)}),
    Copy("copied_in_whole", 2 * w, "pytorch", "gradients copied into the input of the reduce-scatter",
         {**_EVERY, "precision": _SAME_WIDTH}),
    Copy("shards_added", 3 * w * _LATER / RANKS, "pytorch",
         "shares of reduced gradients of all micro-batches but the first added to those kept", _EVERY),
    Copy("alone", 2 * w * Iverson(Eq(RANKS, 1)), "pytorch", "what one rank alone copies instead of a reduce-scatter",
         _EVERY),
    # PyTorch's pipeline reduces after its last micro-batch, and keeps sums as wide as what is reduced until then.
    Copy("kept_wide", (_HALF + w + w * _LATER) * Iverson(Eq(w, 4)) + 3 * w * _LATER * Iverson(Eq(w, 2)), "pytorch",
         "16-bit gradients made as wide as what is reduced, or added to that", _LAST),
    Copy("sums_copied_in", 2 * w * _ONCE, "pytorch", "sums copied into the input of the reduce-scatter", _LAST),
    Copy("sums_alone", 2 * w * Iverson(Eq(RANKS, 1)) * _ONCE, "pytorch",
         "what one rank alone copies instead of a reduce-scatter", _LAST),
)

#: Weights that are gathered, once for every gathering: bytes moved for each byte that all ranks make whole.
WEIGHTS: tuple[Copy, ...] = (
    Copy("cast", 3 / RANKS, "pytorch", "fp32 shares of a rank read, and written in 16 bits",
         {**_FSDP, "precision": ("mixed",)}),
    Copy("copied_in", 2 / RANKS, "pytorch", "shares of a rank copied into the buffer of the all-gather", _FSDP),
    Copy("copied_out", 2 * Iverson(Gt(RANKS, 1)), "pytorch", "gathered weights copied out of that buffer", _FSDP),
)


def chosen(rows: tuple[Copy, ...], choices: Mapping[str, str]) -> Iterator[Copy]:
    """Yield the rows that these choices have."""
    for row in rows:
        if fits(row.options, choices):
            yield row


def bytes_moved(rows: tuple[Copy, ...], choices: Mapping[str, str], sizes: Mapping[Group, Expr]) -> Expr:
    """Return the bytes that rows move of groups of parameters, by the elements or the bytes of each group."""
    own = [row.size for row in chosen(rows, choices)]
    shared = total(*(size for size in own if size.has(RANKS)))
    whole = product(total(*(size for size in own if not size.has(RANKS))), total(*sizes.values()))
    if shared == 0:
        return whole
    return total(whole, *(
        product(shared.xreplace({RANKS: GROUP_BY_NAME["expert_data" if group.expert else "data"].size}), size)
        for group, size in sizes.items()
    ))
