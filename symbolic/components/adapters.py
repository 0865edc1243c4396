"""Low-rank adapters (LoRA): two small matrices beside every projection, and what lies between them.

Every adapter reads its projection's input, which the frozen projection itself does not keep. Where the sequence is
shared out, an adapter of a column-parallel projection gathers its input first and keeps it whole. The embedding's
output is taken to need a gradient, as it is prepared to where inputs are recomputed or weights have 4 bits.
"""

from __future__ import annotations

from ..dimensions import (
    BATCH,
    FFN,
    GATE_UP_FEATURES,
    HIDDEN,
    HIDDEN_FEATURES,
    KV_FEATURES,
    QKV_FEATURES,
    QUERY_FEATURES,
    RANK,
    SEQUENCE,
    SHARED_RANK,
)
from ..ledger import Component, Dimension, Lifetime, Place, Role, Tensor, saved

_BETWEEN = (SEQUENCE, BATCH, RANK)
_SEPARATE, _FUSED = ("separate",), ("fused",)


def _adapter(
    name: str, module: str, columns: Dimension, rows: Dimension, source: str, **options: tuple[str, ...]
) -> tuple[Tensor, ...]:
    """The adapter of one projection; a column-parallel one has its rank shared out, a row-parallel one its output."""
    column_parallel = columns is HIDDEN
    shapes = {
        "a": (SHARED_RANK if column_parallel else RANK, columns),
        "b": (rows if column_parallel else HIDDEN_FEATURES, RANK),
    }
    words = {"a": "matrix that maps to the rank", "b": "matrix that maps from the rank"}
    return (
        *(Tensor(f"{name}.adapter_{which}", module, Role.WEIGHT, shape, 0, Lifetime.PERSISTENT, source, words[which],
                 options=options) for which, shape in shapes.items()),
        saved(f"{name}.adapter_between", module, _BETWEEN, 2, source, "output of the first matrix", **options),
    )


def _input(name: str, module: str) -> Tensor:
    return saved(f"{name}.adapter_input", module, (SEQUENCE, BATCH, HIDDEN), 2, "megatron_bridge",
                 "input of the adapters, gathered where the sequence is shared out")


_ATTENTION = (
    _input("qkv", "qkv"),
    *_adapter("q", "qkv", HIDDEN, QUERY_FEATURES, "peft", projections=_SEPARATE),
    *_adapter("k", "qkv", HIDDEN, KV_FEATURES, "peft", projections=_SEPARATE),
    *_adapter("v", "qkv", HIDDEN, KV_FEATURES, "peft", projections=_SEPARATE),
    *_adapter("qkv", "qkv", HIDDEN, QKV_FEATURES, "megatron_bridge", projections=_FUSED),
    *_adapter("o_proj", "o_proj", QUERY_FEATURES, HIDDEN_FEATURES, "peft"),
)
_SWIGLU = (
    _input("gate_up", "gate_up"),
    *_adapter("gate", "gate_up", HIDDEN, FFN, "peft", projections=_SEPARATE),
    *_adapter("up", "gate_up", HIDDEN, FFN, "peft", projections=_SEPARATE),
    *_adapter("gate_up", "gate_up", HIDDEN, GATE_UP_FEATURES, "megatron_bridge", projections=_FUSED),
    *_adapter("down", "down", FFN, HIDDEN_FEATURES, "peft"),
)
_GELU = (
    _input("up", "up"),
    *_adapter("up", "up", HIDDEN, FFN, "peft"),
    *_adapter("down", "down", FFN, HIDDEN_FEATURES, "peft"),
)

COMPONENTS = (
    Component("attention_adapters", "Adapters of attention", 31, Place.LAYER, _ATTENTION,
              options={"adapters": ("attention", "all_linear")}),
    Component("swiglu_adapters", "Adapters of SwiGLU", 51, Place.DENSE, _SWIGLU,
              options={"adapters": ("all_linear",), "mlp": ("swiglu",)}),
    Component("gelu_adapters", "Adapters of the GELU MLP", 52, Place.DENSE, _GELU,
              options={"adapters": ("all_linear",), "mlp": ("gelu",)}),
)
