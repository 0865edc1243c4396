"""Dummy weight gradients: what autograd gets for a weight whose gradient the product itself adds to the buffer.

Transformer Engine keeps one for every distinct shape, from the first backward pass on, whatever layer or
micro-batch it is for. The gradients themselves are in the gradient buffer, which is counted elsewhere.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from sympy import And, Eq, Expr, Integer, fraction

from ..choices import MEGATRON_PEAKS
from ..dimension import ONE, Dimension
from ..dimensions import (
    EXPERT_FFN,
    EXPERT_GATE_UP,
    FFN,
    GATE_UP_FEATURES,
    HIDDEN,
    KEY_VALUE_FEATURES,
    LATENT_KV,
    LATENT_KV_ROTARY,
    LATENT_Q,
    QKV_FEATURES,
    QUERY_FEATURES,
    SHARED_FFN,
    SHARED_GATE_UP,
    VALUE_FEATURES,
    VOCAB,
)
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor
from ..parameters import symbols

t, et, lq = symbols("t et lq")

#: Dimensions that tensor parallelism shares out, and those that expert tensor parallelism does.
_BY_T = frozenset({
    QKV_FEATURES, QUERY_FEATURES, GATE_UP_FEATURES, FFN, VOCAB, KEY_VALUE_FEATURES, VALUE_FEATURES, SHARED_FFN,
    SHARED_GATE_UP,
})
_BY_ET = frozenset({EXPERT_FFN, EXPERT_GATE_UP})


class Shape(NamedTuple):
    """The shape of a weight, and 1 or a condition of its existence."""

    rows: Dimension
    columns: Dimension
    exists: Expr = ONE

    @property
    def sizes(self) -> tuple[Expr, Expr]:
        """T times its sizes on one rank."""
        return _times_t(self.rows), _times_t(self.columns)


def _times_t(dimension: Dimension) -> Expr:
    if dimension in _BY_T:
        return dimension.size
    return dimension.size * t / et if dimension in _BY_ET else dimension.size * t


Shapes = dict[str, Shape]

#: Shapes of the attention that every layer has, by kind of heads.
ATTENTION: dict[str, Shapes] = {
    "grouped": {"qkv": Shape(QKV_FEATURES, HIDDEN), "output": Shape(HIDDEN, QUERY_FEATURES)},
    "latent": {
        "q": Shape(QUERY_FEATURES, HIDDEN, Iverson(Eq(lq, 0))),
        "q_down": Shape(LATENT_Q, HIDDEN, Iverson(lq > 0)), "q_up": Shape(QUERY_FEATURES, LATENT_Q, Iverson(lq > 0)),
        "kv_down": Shape(LATENT_KV_ROTARY, HIDDEN), "kv_up": Shape(KEY_VALUE_FEATURES, LATENT_KV),
        "output": Shape(HIDDEN, VALUE_FEATURES),
    },
}
#: Shapes of a dense MLP, by kind of MLP, and of routed and shared experts.
MLP: dict[str, Shapes] = {
    "swiglu": {"gate_up": Shape(GATE_UP_FEATURES, HIDDEN), "down": Shape(HIDDEN, FFN)},
    "gelu": {"up": Shape(FFN, HIDDEN), "down": Shape(HIDDEN, FFN)},
}
EXPERTS: Shapes = {
    "gate_up": Shape(EXPERT_GATE_UP, HIDDEN), "down": Shape(HIDDEN, EXPERT_FFN),
    "shared_gate_up": Shape(SHARED_GATE_UP, HIDDEN), "shared_down": Shape(HIDDEN, SHARED_FFN),
}
HEAD = Shape(VOCAB, HIDDEN)


def differs(shape: Shape, others: tuple[Shape, ...]) -> Expr:
    """1 if a rank's part of ``shape`` has other sizes than that of each of ``others``, else 0."""
    found: Expr = ONE
    for other in others:
        found *= 1 - _same(shape, other) * other.exists
    return found


@cache
def _same(one: Shape, other: Shape) -> Expr:
    """1 if both have the same sizes on every rank; then the sums of their sizes are the same too."""
    if (sum(one.sizes) - sum(other.sizes)).is_nonzero:
        return Integer(0)
    pairs = {frozenset(fraction(left / right)) for left, right in zip(one.sizes, other.sizes, strict=True)}
    return Iverson(And(*(Eq(*sorted(pair, key=str)) for pair in pairs if len(pair) == 2)))


def _dummy(name: str, shape: Shape, others: tuple[Shape, ...], **options: tuple[str, ...]) -> Tensor:
    return Tensor(
        f"dummy.{name}", "weight_gradient", Role.BUFFER, (shape.rows, shape.columns), 2, Lifetime.SHARED,
        "transformer_engine", "bf16 dummy gradient of this shape", when=shape.exists * differs(shape, others),
        options={"weight_gradient": ("fused",), "peak": MEGATRON_PEAKS, **options},
    )


def _dummies(
    prefix: str, shapes: Shapes, before: tuple[Shape, ...], **options: tuple[str, ...]
) -> tuple[Tensor, ...]:
    """The rows of several shapes, each of which exists unless one before it is the same."""
    kept = tuple(shapes.values())
    return tuple(
        _dummy(f"{prefix}.{name}", shape, (*before, *kept[:place]), **options)
        for place, (name, shape) in enumerate(shapes.items())
    )


def head_dummies() -> tuple[Tensor, ...]:
    """The rows of the head's dummy, one for each kind of layers, as one of a layer may have the same shape."""
    return tuple(
        _dummy(f"{heads}.{mlp}", HEAD, (*ATTENTION[heads].values(), *MLP[mlp].values()), heads=(heads,), mlp=(mlp,))
        for heads in ATTENTION for mlp in MLP
    )


_NOTE = "Layers of both kinds on one stage are taken to have different shapes."

COMPONENTS = (
    Component(
        "attention_dummies", "Dummy weight gradients of attention", 96, Place.LAYER,
        tuple(row for heads, shapes in ATTENTION.items() for row in _dummies(heads, shapes, (), heads=(heads,))),
    ),
    Component(
        "mlp_dummies", "Dummy weight gradients of the MLP", 97, Place.DENSE,
        tuple(
            row for heads, attention in ATTENTION.items() for mlp, shapes in MLP.items()
            for row in _dummies(f"{heads}.{mlp}", shapes, tuple(attention.values()), heads=(heads,), mlp=(mlp,))
        ),
        note=_NOTE,
    ),
    Component(
        "expert_dummies", "Dummy weight gradients of experts", 98, Place.EXPERTS,
        tuple(
            row for heads, attention in ATTENTION.items()
            for row in _dummies(heads, EXPERTS, tuple(attention.values()), heads=(heads,))
        ),
        note=_NOTE,
        options={"layers": ("experts",)},
    ),
)
