"""DeepSpeed's ZeRO: what a rank keeps for its parameters in stages 0 to 3, and how they are padded.

Stages 1 and 2 lay all parameters into one bf16 buffer, padded so that every rank has an even number of its
elements; its fp32 master weights and moments are those of its part. Stage 3 cuts every parameter into as many parts
as there are ranks; parameters up to a threshold stay gathered besides. In stage 0, in stage 1 while micro-batches are
added up, and there without ``overlap_comm`` until the backward pass is over, gradients are autograd's own tensors; bf16
gradients of a part are kept as whole tensors wherever the part cuts through one, see ``kept_gradients``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sympy import Eq, Expr, Integer, Le

from ..functions import Iverson, pad_to
from ..ledger import Role
from ..parameters import symbols
from .weights import State, Weight, elements

D, c, R, w, m, pt, ovl = symbols("D c R w m pt ovl")
zero1, zero2, zero3, shards = symbols("zero1 zero2 zero3 shards")

#: Every rank's part of the buffer of stages 1 and 2 starts at a multiple of so many elements.
START_ALIGNMENT = 2

#: 1 where a rank keeps the bf16 gradients of its part of the buffer, and no more of them; in fp32 none.
KEEPS_TENSORS = Iverson(Eq(w, 2)) * (1 - zero3) * (zero2 + zero1 * (1 - zero2) * Iverson(Eq(m, 1)))
#: 1 in stage 1, whose gradients are added up whole while there are more micro-batches.
ADDS_WHOLE = zero1 * (1 - zero2) * Iverson(m > 1)
#: 1 in stage 1 where the only micro-batch's gradients stay whole, until its backward pass is over and they are reduced.
STAYS = zero1 * (1 - zero2) * (1 - ovl) * Iverson(Eq(m, 1))


def persisted(units: Expr) -> Expr:
    """Return elements of a parameter that stays gathered: small ones, padded as they were gathered."""
    return Iverson(Le(units, pt)) * pad_to(units, shards)


def _persisted(weight: Weight) -> Expr:
    return persisted(weight.elements)


def states_in(precision: str) -> tuple[State, ...]:
    """Return what a rank keeps in a precision: 16-bit weights and fp32 master weights, or both in fp32."""
    size, word = compute_bytes(precision), "fp32" if precision == "fp32" else "bf16"
    return (
        State("weight", Role.WEIGHT, size, f"{word} weight", "deepspeed"),
        State("persisted", Role.WEIGHT, size * zero3, f"{word} weight that stays gathered in stage 3", "deepspeed",
              _persisted, attached=True),
        State("whole_gradient", Role.GRADIENT, size * (1 - zero1 + ADDS_WHOLE),
              f"{word} gradient, whole", "deepspeed", elements),
        State("gradient", Role.GRADIENT, zero2 * w + zero1 * (1 - zero2) * Iverson(Eq(m, 1)) * w * R / (D * c),
              "gradient, fp32 or bf16, of the rank's part", "deepspeed"),
        State("master_weight", Role.OPTIMIZER, Integer(4), "fp32 master weight", "deepspeed"),
    )


def in_parts(kept: tuple[State, ...]) -> tuple[State, ...]:
    """Return an optimizer's states: those that follow from shapes are of the rank's part, in stage 0 of parameters."""
    return tuple(
        version for state in kept for version in ((state,) if state.count is None else (
            replace(state, bytes=state.bytes * (1 - zero1), count=_of_copies(state.count)),
            replace(state, bytes=state.bytes * zero1, of_part=True),
        ))
    )


def _of_copies(count: Callable[[Weight], Expr]) -> Callable[[Weight], Expr]:
    """Return the units of ``count`` for the fp32 copy of a parameter, which belongs to no module."""
    return lambda weight: count(replace(weight, is_embedding=False))


def compute_bytes(precision: str) -> Integer:
    """Return the bytes of an element that layers compute with."""
    return Integer(4 if precision == "fp32" else 2)


def freed(choices: Mapping[str, str]) -> tuple[str, ...]:
    """Return switches that DeepSpeed has although the framework itself fixes them."""
    return ("zero1", "zero2", "zero3") if choices["data_parallel"] == "deepspeed" else ()


def buffer_elements(parameters: Expr, aligned_parameters: Expr, ranks: Expr, frozen: bool, before: Expr) -> Expr:
    """Return elements of a rank's parameters with their padding: none, at the end of the buffer, or of every parameter.

    Frozen ones are in no buffer; ``before`` are the elements that lie in front of them in theirs, which are padded.
    """
    multiple = START_ALIGNMENT * ranks
    flat = parameters if frozen else pad_to(before + parameters, multiple)
    flat -= pad_to(before, multiple) if before else Integer(0)
    return parameters + zero1 * (1 - zero3) * (flat - parameters) + zero3 * (aligned_parameters - parameters)


def partition_size(sizes: Sequence[int], ranks: int) -> int:
    """Count the elements of one rank's part of the buffer of stages 1 and 2."""
    multiple = START_ALIGNMENT * ranks
    return -(-sum(sizes) // multiple) * START_ALIGNMENT


def kept_gradients(sizes: Sequence[int], ranks: int, rank: int) -> int:
    """Count the elements of bf16 gradients that a rank keeps in stage 2: of all tensors that its part touches.

    ``sizes`` are those of the parameters in the order of the model. Raises ValueError if ``rank`` is not one of 0
    to ``ranks - 1``.
    """
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks}")
    part = partition_size(sizes, ranks)
    kept = end = 0
    for size in sizes:
        start, end = end, end + size
        if start < (rank + 1) * part and end > rank * part:
            kept += size
    return kept
