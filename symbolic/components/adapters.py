"""Low-rank adapters (LoRA): two small matrices beside every projection, and what lies between them.

Every adapter reads its projection's input, which the frozen projection itself does not keep, whole where it is gathered
for the projection. In Megatron each of its matrices is shared out over tensor-parallel ranks, and what lies between
them is gathered or summed. The embedding's output is taken to need a gradient, as it is prepared to where inputs are
recomputed or weights have 4 bits.
"""

from __future__ import annotations

from typing import Any

from sympy import Integer

from ..dimension import Dimension
from ..dimensions import (
    BATCH,
    FFN,
    GATE_UP_FEATURES,
    HIDDEN,
    HIDDEN_FEATURES,
    KV_FEATURES,
    LOCAL_RANK,
    QKV_FEATURES,
    QUERY_FEATURES,
    RANK,
    SEQUENCE,
)
from ..ledger import Component, Place, Tensor, saved, weight
from ..parameters import symbols
from ..work import NONE, Ranks, Stream, Transfer, Work

(sp,) = symbols("sp")

_TOKENS = (SEQUENCE, BATCH)
_ALL, _ATTENTION = ("all_linear",), ("attention", "all_linear")
_QKV = ("qkv", *_ATTENTION)
_ANY = ("q_v", *_QKV)
#: Adapters in fp32 under autocast.
_FP32: Any = {"adapter_precision": ("fp32",)}
#: Adapters that have magnitudes.
_DORA: Any = {"adapter_kind": ("dora",)}
#: One adapter for each fused projection, or one for each of its parts.
_JOINED, _APART = {"adapter_parts": ("joined",)}, {"adapter_parts": ("apart",)}


def _adapter(
    name: str, module: str, columns: Dimension, rows: Dimension, between: Dimension, **options: Any
) -> tuple[Tensor, ...]:
    """Get the adapter of one projection from ``columns`` to ``rows``, with ``between`` as rows of its first matrix."""
    return (
        weight(f"{name}.adapter_a", module, (between, columns), "peft", "matrix that maps to the rank", tokens=_TOKENS,
               **options),
        weight(f"{name}.adapter_b", module, (rows, RANK), "peft", "matrix that maps from the rank", tokens=_TOKENS,
               **options),
        saved(f"{name}.adapter_between", module, (SEQUENCE, BATCH, RANK), 2, "peft", "output of the first matrix",
              **options),
        *_magnitude(name, module, rows, **options, **_DORA),
        *_casts(name, module, columns, rows, between, **options, **_FP32),
    )


def _casts(
    name: str, module: str, columns: Dimension, rows: Dimension, between: Dimension, **options: Any
) -> tuple[Tensor, ...]:
    """Return the casts of fp32 adapters under autocast: PEFT casts each input to fp32, autocast back to bf16."""
    return (
        saved(f"{name}.adapter_input_copy", module, (SEQUENCE, BATCH, columns), 2, "peft",
              "bf16 copy of the input, made from an fp32 one", **options),
        saved(f"{name}.adapter_a_cast", module, (between, columns), 2, "pytorch", "bf16 copy of the first matrix",
              **options),
        saved(f"{name}.adapter_b_cast", module, (rows, RANK), 2, "pytorch", "bf16 copy of the second matrix",
              **options),
    )


def _magnitude(name: str, module: str, rows: Dimension, **options: Any) -> tuple[Tensor, ...]:
    """Weight-decomposed adapters (DoRA): a trained magnitude of every output, which scales both outputs."""
    return (
        weight(f"{name}.magnitude", module, (rows,), "peft", "magnitude of every output", **options),
        saved(f"{name}.base_output", module, (SEQUENCE, BATCH, rows), 2, "peft", "output of the frozen projection",
              **options),
        saved(f"{name}.adapter_output", module, (SEQUENCE, BATCH, rows), 2, "peft", "output of the second matrix",
              **options),
        saved(f"{name}.magnitudes", module, (rows,), 6, "peft",
              "norms of the adapted weights, magnitudes over them, and these less 1", **options),
    )


def _column(name: str, module: str, rows: Dimension, **options: Any) -> tuple[Tensor, ...]:
    """Return the adapter of a column-parallel projection: the rows of both matrices are shared out."""
    return _adapter(name, module, HIDDEN, rows, LOCAL_RANK, **options)


def _row(name: str, module: str, columns: Dimension, **options: Any) -> tuple[Tensor, ...]:
    """Get the adapter of a row-parallel projection: columns of the first matrix, rows of the second are shared out."""
    return _adapter(name, module, columns, HIDDEN_FEATURES, RANK, **options)


def _input(name: str, module: str) -> Tensor:
    return saved(f"{name}.adapter_input", module, (SEQUENCE, BATCH, HIDDEN), 2, "peft",
                 "input of the adapters, gathered from sequence-parallel ranks", adapter_precision=("low",))


def _added(name: str, module: str, columns: Dimension, rows: Dimension, **options: Any) -> tuple[Work, ...]:
    """Return streams of an adapter: its output scaled and added, its gradient scaled, two gradients of an input added.

    With magnitudes both outputs are scaled, and the norms of the adapted weights taken in every forward pass.
    """
    return (
        Stream(f"{name}.magnitude", module, (SEQUENCE, BATCH, rows), 14, 20, "peft",
               "outputs scaled by magnitudes and added; their gradients, and sums for the magnitudes", 4,
               options={**options, **_DORA}),
        Stream(f"{name}.casts", module, (SEQUENCE, BATCH, columns), 12, 12, "peft",
               "input cast to fp32 and back, and its gradient", 2, options={**options, **_FP32}),
        Stream(f"{name}.weight_norm", module, (rows, columns), 16, 0, "peft",
               "adapted weights made, and their norms", 4, options={**options, **_DORA}),
        Stream(f"{name}.adapter_sum", module, (SEQUENCE, BATCH, rows), 10, 4, "megatron_bridge",
               "output of the adapter scaled and added to that of the projection", 2, options=options),
        Stream(f"{name}.adapter_input", module, (SEQUENCE, BATCH, columns), 0, 6, "megatron_bridge",
               "gradients of the input by projection and adapter added", 1, options=options),
    )


def _between(name: str, module: str, forward: int, **options: Any) -> Transfer:
    """Return the exchange of what lies between the matrices: ``forward`` passes, and its gradient summed."""
    return Transfer(f"{name}.adapter_between", module, Ranks.TENSOR, (SEQUENCE, BATCH, RANK), 2, Integer(forward),
                    Integer(2), "megatron_bridge", "output of the first matrix made whole, its gradient summed",
                    options=options)


def _column_work(name: str, module: str, rows: Dimension, **options: Any) -> tuple[Work, ...]:
    return (*_added(name, module, HIDDEN, rows, **options), _between(name, module, 1, **options))


def _row_work(name: str, module: str, columns: Dimension, **options: Any) -> tuple[Work, ...]:
    return (
        *_added(name, module, columns, HIDDEN, **options), _between(name, module, 2, **options),
        Transfer(f"{name}.adapter_output", module, Ranks.TENSOR, (SEQUENCE, BATCH, HIDDEN), 2, Integer(1), sp,
                 "megatron_bridge", "output of the adapter gathered whole; with sequence parallelism its gradient too",
                 hidden=NONE, options=options),
    )


COMPONENTS = (
    Component(
        "attention_adapters", "Adapters of attention", 31, Place.LAYER,
        (
            _input("qkv", "qkv"),
            *_column("qkv", "qkv", QKV_FEATURES, **_JOINED),
            *_column("q", "qkv", QUERY_FEATURES, **_APART),
            *_column("k", "qkv", KV_FEATURES, adapters=_QKV, **_APART),
            *_column("v", "qkv", KV_FEATURES, **_APART),
            *_row("o_proj", "o_proj", QUERY_FEATURES, adapters=_ATTENTION),
        ),
        options={"adapters": _ANY},
        work=(
            *_column_work("qkv", "qkv", QKV_FEATURES, **_JOINED),
            *_column_work("q", "qkv", QUERY_FEATURES, **_APART),
            *_column_work("k", "qkv", KV_FEATURES, adapters=_QKV, **_APART),
            *_column_work("v", "qkv", KV_FEATURES, **_APART),
            *_row_work("o_proj", "o_proj", QUERY_FEATURES, adapters=_ATTENTION),
        ),
    ),
    Component(
        "swiglu_adapters", "Adapters of SwiGLU", 51, Place.DENSE,
        (
            _input("gate_up", "gate_up"),
            *_column("gate_up", "gate_up", GATE_UP_FEATURES, **_JOINED),
            *_column("gate", "gate_up", FFN, **_APART),
            *_column("up", "gate_up", FFN, **_APART),
            *_row("down", "down", FFN),
        ),
        options={"adapters": _ALL},
        work=(
            *_column_work("gate_up", "gate_up", GATE_UP_FEATURES, **_JOINED),
            *_column_work("gate", "gate_up", FFN, **_APART),
            *_column_work("up", "gate_up", FFN, **_APART),
            *_row_work("down", "down", FFN),
        ),
    ),
)
