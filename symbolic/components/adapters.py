"""Low-rank adapters (LoRA): two small matrices beside every projection, and what lies between them.

Every adapter reads its projection's input, which the frozen projection itself does not keep, whole where it is gathered
for the projection. Transformer Engine's layers with a norm keep the norm's output all the same once they hand it out,
which adapters ask for (``LayerNormLinear``); where it is gathered, that is a tensor besides the adapters' input, and in
FP8 it is the quantised one. In Megatron each of its matrices is shared out over tensor-parallel ranks, and what lies
between them is gathered or summed. The embedding's output is taken to need a gradient, as it is prepared to where
inputs are recomputed or weights have 4 bits.
"""

from __future__ import annotations

from typing import Any

from sympy import Expr, Integer

from ..dimension import ONE, Dimension
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
    SEQUENCE_SP,
)
from ..functions import Iverson
from ..ledger import Component, Place, Tensor, saved, weight
from ..parameters import symbols
from ..work import NONE, Ranks, Stream, Transfer, Work

sp, t = symbols("sp t")

TOKENS = (SEQUENCE, BATCH)
_ALL, _ATTENTION = ("all_linear",), ("attention", "all_linear")
_QKV = ("qkv", *_ATTENTION)
_ANY = ("q_v", *_QKV)
#: Adapters in fp32 under autocast, those of whose inputs PEFT makes copies, and those that read what their layers do.
_FP32: Any = {"adapter_precision": ("fp32", "fp32_uncopied")}
_COPIES: Any = {"adapter_precision": ("fp32",)}
UNCOPIED: Any = {"adapter_precision": ("low", "fp32_uncopied")}
#: Adapters that have magnitudes.
_DORA: Any = {"adapter_kind": ("dora",)}
#: Adapters of dense MLPs and shared experts; where PEFT takes experts, it takes these names for theirs.
LINEAR_LAYERS = ("none", "shared", "each")
#: One adapter for each fused projection, or one for each of its parts.
_JOINED, _APART = {"adapter_parts": ("joined",)}, {"adapter_parts": ("apart",)}


def adapter(
    name: str, module: str, columns: Dimension, rows: Dimension, between: Dimension, *,
    tokens: tuple[Dimension, ...] = TOKENS, experts: tuple[Dimension, ...] = (), when: Expr = ONE, **options: Any,
) -> tuple[Tensor, ...]:
    """Return the matrices of an adapter from ``columns`` to ``rows``, and what lies between them.

    ``between`` are the rows of its first matrix, ``experts`` the dimension of those that have one each.
    """
    return (
        weight(f"{name}.adapter_a", module, (*experts, between, columns), "peft", "matrix that maps to the rank", when,
               tokens=tokens, **options),
        weight(f"{name}.adapter_b", module, (*experts, rows, RANK), "peft", "matrix that maps from the rank", when,
               tokens=tokens, **options),
        saved(f"{name}.adapter_between", module, (*tokens, RANK), 2, "peft", "output of the first matrix", when=when,
              **options),
    )


def _adapter(
    name: str, module: str, columns: Dimension, rows: Dimension, between: Dimension, when: Expr = ONE, **options: Any
) -> tuple[Tensor, ...]:
    """Return the adapter of a projection, with what other kinds and precisions of it have besides."""
    return (
        *adapter(name, module, columns, rows, between, when=when, **options),
        *_magnitude(name, module, rows, when, **options, **_DORA),
        *casts(name, module, columns, (between, columns), (rows, RANK), when, **options),
    )


def matrix_casts(
    name: str, module: str, first: tuple[Dimension, ...], second: tuple[Dimension, ...], when: Expr = ONE,
    **options: Any,
) -> tuple[Tensor, ...]:
    """Return the 16-bit copies of fp32 matrices under autocast."""
    return tuple(
        saved(f"{name}.adapter_{side}_cast", module, shape, 2, "pytorch", f"bf16 copy of the {which} matrix", when=when,
              **options, **_FP32) for side, which, shape in (("a", "first", first), ("b", "second", second))
    )


def casts(
    name: str, module: str, columns: Dimension, first: tuple[Dimension, ...], second: tuple[Dimension, ...],
    when: Expr = ONE, **options: Any,
) -> tuple[Tensor, ...]:
    """Return the casts of fp32 adapters under autocast: PEFT casts each input to fp32, autocast back to bf16."""
    return (
        saved(f"{name}.adapter_input_copy", module, (*TOKENS, columns), 2, "peft",
              "bf16 copy of the input, made from an fp32 one", when=when, **options, **_COPIES),
        *matrix_casts(name, module, first, second, when, **options),
    )


def _magnitude(name: str, module: str, rows: Dimension, when: Expr, **options: Any) -> tuple[Tensor, ...]:
    """Weight-decomposed adapters (DoRA): a trained magnitude of every output, which scales both outputs."""
    return (
        weight(f"{name}.magnitude", module, (rows,), "peft", "magnitude of every output", when, **options),
        saved(f"{name}.base_output", module, (*TOKENS, rows), 2, "peft", "output of the frozen projection",
              when=when, **options),
        saved(f"{name}.adapter_output", module, (*TOKENS, rows), 2, "peft", "output of the second matrix",
              when=when, **options),
        saved(f"{name}.magnitudes", module, (rows,), 6, "peft",
              "norms of the adapted weights, magnitudes over them, and these less 1", when=when, **options),
    )


def column_adapter(name: str, module: str, rows: Dimension, when: Expr = ONE, **options: Any) -> tuple[Tensor, ...]:
    """Return the adapter of a column-parallel projection: the rows of both matrices are shared out."""
    return _adapter(name, module, HIDDEN, rows, LOCAL_RANK, when, **options)


def row_adapter(name: str, module: str, columns: Dimension, when: Expr = ONE, **options: Any) -> tuple[Tensor, ...]:
    """Get the adapter of a row-parallel projection: columns of the first matrix, rows of the second are shared out."""
    return _adapter(name, module, columns, HIDDEN_FEATURES, RANK, when, **options)


def _input(name: str, module: str) -> tuple[Tensor, ...]:
    return (
        saved(f"{name}.adapter_input", module, (*TOKENS, HIDDEN), 2, "peft",
              "input of the adapters, gathered from sequence-parallel ranks", **UNCOPIED),
        saved(f"{name}.norm_output", module, (SEQUENCE_SP, BATCH, HIDDEN), 2, "transformer_engine",
              "output of the norm in a frozen layer that hands it out, before it is gathered",
              when=sp * Iverson(t > 1), norm=("fused",), fp8=("none",)),
    )


def added(
    name: str, module: str, columns: Dimension, rows: Dimension, tokens: tuple[Dimension, ...] = TOKENS,
    when: Expr = ONE, **options: Any,
) -> tuple[Work, ...]:
    """Return streams of an adapter: its output scaled and added, its gradient scaled, two gradients of an input added.

    With magnitudes both outputs are scaled, and the norms of the adapted weights taken in every forward pass.
    """
    return (
        Stream(f"{name}.magnitude", module, (*tokens, rows), 14, 20, "peft",
               "outputs scaled by magnitudes and added; their gradients, and sums for the magnitudes", 4, when,
               options={**options, **_DORA}),
        Stream(f"{name}.casts", module, (*tokens, columns), 12, 12, "peft",
               "input cast to fp32 and back, and its gradient", 2, when, options={**options, **_COPIES}),
        Stream(f"{name}.weight_norm", module, (rows, columns), 16, 0, "peft",
               "adapted weights made, and their norms", 4, when, options={**options, **_DORA}),
        Stream(f"{name}.adapter_sum", module, (*tokens, rows), 10, 4, "megatron_bridge",
               "output of the adapter scaled and added to that of the projection", 2, when, options=options),
        Stream(f"{name}.adapter_input", module, (*tokens, columns), 0, 6, "megatron_bridge",
               "gradients of the input by projection and adapter added", 1, when, options=options),
    )


def _between(name: str, module: str, forward: int, when: Expr, **options: Any) -> Transfer:
    """Return the exchange of what lies between the matrices: ``forward`` passes, and its gradient summed."""
    return Transfer(f"{name}.adapter_between", module, Ranks.TENSOR, (*TOKENS, RANK), 2, Integer(forward),
                    Integer(2), "megatron_bridge", "output of the first matrix made whole, its gradient summed",
                    when=when, options=options)


def column_work(name: str, module: str, rows: Dimension, when: Expr = ONE, **options: Any) -> tuple[Work, ...]:
    """Return streams and transfers of the adapter of a column-parallel projection."""
    return (*added(name, module, HIDDEN, rows, when=when, **options), _between(name, module, 1, when, **options))


def row_work(name: str, module: str, columns: Dimension, when: Expr = ONE, **options: Any) -> tuple[Work, ...]:
    """Return streams and transfers of the adapter of a row-parallel projection."""
    return (
        *added(name, module, columns, HIDDEN, when=when, **options), _between(name, module, 2, when, **options),
        Transfer(f"{name}.adapter_output", module, Ranks.TENSOR, (*TOKENS, HIDDEN), 2, Integer(1), sp,
                 "megatron_bridge", "output of the adapter gathered whole; with sequence parallelism its gradient too",
                 hidden=NONE, when=when, options=options),
    )


COMPONENTS = (
    Component(
        "attention_adapters", "Adapters of attention", 31, Place.LAYER,
        (
            *_input("qkv", "qkv"),
            *column_adapter("qkv", "qkv", QKV_FEATURES, **_JOINED),
            *column_adapter("q", "qkv", QUERY_FEATURES, **_APART),
            *column_adapter("k", "qkv", KV_FEATURES, adapters=_QKV, **_APART),
            *column_adapter("v", "qkv", KV_FEATURES, **_APART),
            *row_adapter("o_proj", "o_proj", QUERY_FEATURES, adapters=_ATTENTION),
        ),
        options={"adapters": _ANY, "heads": ("grouped", "latent")},
        work=(
            *column_work("qkv", "qkv", QKV_FEATURES, **_JOINED),
            *column_work("q", "qkv", QUERY_FEATURES, **_APART),
            *column_work("k", "qkv", KV_FEATURES, adapters=_QKV, **_APART),
            *column_work("v", "qkv", KV_FEATURES, **_APART),
            *row_work("o_proj", "o_proj", QUERY_FEATURES, adapters=_ATTENTION),
        ),
    ),
    Component(
        "swiglu_adapters", "Adapters of SwiGLU", 51, Place.DENSE,
        (
            *_input("gate_up", "gate_up"),
            *column_adapter("gate_up", "gate_up", GATE_UP_FEATURES, **_JOINED),
            *column_adapter("gate", "gate_up", FFN, **_APART),
            *column_adapter("up", "gate_up", FFN, **_APART),
            saved("down.adapter_input", "down", (*TOKENS, FFN), 2, "peft", "input of the down projection",
                  **UNCOPIED),
            *row_adapter("down", "down", FFN),
        ),
        options={"adapters": _ALL, "expert_adapters": LINEAR_LAYERS},
        work=(
            *column_work("gate_up", "gate_up", GATE_UP_FEATURES, **_JOINED),
            *column_work("gate", "gate_up", FFN, **_APART),
            *column_work("up", "gate_up", FFN, **_APART),
            *row_work("down", "down", FFN),
        ),
    ),
)
