"""Low-rank adapters (LoRA): two small matrices beside every projection, and what lies between them.

Every adapter reads its projection's input, which the frozen projection itself does not keep. The embedding's
output is taken to need a gradient, as it is prepared to where inputs are recomputed or weights have 4 bits.
"""

from __future__ import annotations

from ..dimension import Dimension
from ..dimensions import BATCH, FFN, HIDDEN, KV_FEATURES, QUERY_FEATURES, RANK, SEQUENCE
from ..ledger import Component, Place, Tensor, saved, weight

_TOKENS = (SEQUENCE, BATCH)


def _adapter(name: str, module: str, columns: Dimension, rows: Dimension) -> tuple[Tensor, ...]:
    """The adapter of one projection from ``columns`` to ``rows``."""
    return (
        weight(f"{name}.adapter_a", module, (RANK, columns), "peft", "matrix that maps to the rank", tokens=_TOKENS),
        weight(f"{name}.adapter_b", module, (rows, RANK), "peft", "matrix that maps from the rank", tokens=_TOKENS),
        saved(f"{name}.adapter_between", module, (SEQUENCE, BATCH, RANK), 2, "peft", "output of the first matrix"),
    )


def _input(name: str, module: str) -> Tensor:
    return saved(f"{name}.adapter_input", module, (SEQUENCE, BATCH, HIDDEN), 2, "peft", "input of the adapters")


_ATTENTION = (
    _input("qkv", "qkv"),
    *_adapter("q", "qkv", HIDDEN, QUERY_FEATURES),
    *_adapter("k", "qkv", HIDDEN, KV_FEATURES),
    *_adapter("v", "qkv", HIDDEN, KV_FEATURES),
    *_adapter("o_proj", "o_proj", QUERY_FEATURES, HIDDEN),
)
_SWIGLU = (
    _input("gate_up", "gate_up"),
    *_adapter("gate", "gate_up", HIDDEN, FFN),
    *_adapter("up", "gate_up", HIDDEN, FFN),
    *_adapter("down", "down", FFN, HIDDEN),
)

COMPONENTS = (
    Component("attention_adapters", "Adapters of attention", 31, Place.LAYER, _ATTENTION,
              options={"adapters": ("attention", "all_linear")}),
    Component("swiglu_adapters", "Adapters of SwiGLU", 51, Place.DENSE, _SWIGLU,
              options={"adapters": ("all_linear",)}),
)
