"""Dummy weight gradients: what autograd gets for a weight whose gradient the product itself adds to the buffer.

Transformer Engine keeps one for every distinct shape, from the first backward pass on, whatever layer or
micro-batch it is for. The gradients themselves are in the gradient buffer, which is counted elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from sympy import And, Eq, Expr, Integer

from ..choices import MEGATRON_PEAKS
from ..dimensions import FFN, GATE_UP_FEATURES, HIDDEN, QKV_FEATURES, QUERY_FEATURES, VOCAB
from ..functions import Iverson
from ..ledger import ONE, Component, Dimension, Lifetime, Place, Role, Tensor
from ..parameters import symbols

h, f, A, K, v, t = symbols("h f A K v t")


class Shape(NamedTuple):
    """The shape of a weight, and t times its sizes on one rank."""

    dimensions: tuple[Dimension, Dimension]
    sizes: tuple[Expr, Expr]


QKV = Shape((QKV_FEATURES, HIDDEN), (A + 2 * K, h * t))
OUTPUT = Shape((HIDDEN, QUERY_FEATURES), (h * t, A))
GATE_UP = Shape((GATE_UP_FEATURES, HIDDEN), (2 * f, h * t))
UP = Shape((FFN, HIDDEN), (f, h * t))
DOWN = Shape((HIDDEN, FFN), (h * t, f))
HEAD = Shape((VOCAB, HIDDEN), (v, h * t))

#: Shapes of the attention that every layer has, by kind of heads, and of a dense MLP, by kind of MLP.
ATTENTION: dict[str, dict[str, Shape]] = {"grouped": {"qkv": QKV, "output": OUTPUT}}
MLP: dict[str, dict[str, Shape]] = {
    "swiglu": {"gate_up": GATE_UP, "gated_down": DOWN},
    "gelu": {"up": UP, "down": DOWN},
}


def differs(shape: Shape, others: tuple[Shape, ...]) -> Expr:
    """1 if a rank's part of ``shape`` has other sizes than that of each of ``others``, else 0."""
    found: Expr = ONE
    for other in others:
        found *= 1 - _same(shape, other)
    return found


def _same(one: Shape, other: Shape) -> Expr:
    """1 if both have the same sizes on every rank; then the sums of their sizes are the same too."""
    if (sum(one.sizes) - sum(other.sizes)).is_nonzero:
        return Integer(0)
    pairs = {frozenset(pair) for pair in zip(one.sizes, other.sizes, strict=True)}
    return Iverson(And(*(Eq(*sorted(pair, key=str)) for pair in pairs if len(pair) == 2)))


def dummy(name: str, shape: Shape, others: tuple[Shape, ...], **options: tuple[str, ...]) -> Tensor:
    """The row of a dummy of this shape, which exists unless one of ``others`` has the same."""
    return Tensor(
        f"dummy.{name}", "weight_gradient", Role.BUFFER, shape.dimensions, 2, Lifetime.SHARED, "transformer_engine",
        "bf16 dummy gradient of this shape", when=differs(shape, others),
        options={"weight_gradient": ("fused",), "peak": MEGATRON_PEAKS, **options},
    )


def _dummies(shapes: dict[str, Shape], before: tuple[Shape, ...], **options: tuple[str, ...]) -> tuple[Tensor, ...]:
    kept = tuple(shapes.values())
    return tuple(
        dummy(name, shape, (*before, *kept[:place]), **options) for place, (name, shape) in enumerate(shapes.items())
    )


def head_dummies() -> tuple[Tensor, ...]:
    """The rows of the head's dummy, one for each kind of layers, as a layer's may have the same shape."""
    return tuple(
        dummy(f"{heads}_{mlp}", HEAD, (*ATTENTION[heads].values(), *MLP[mlp].values()), heads=(heads,), mlp=(mlp,))
        for heads in ATTENTION for mlp in MLP
    )


COMPONENTS = (
    Component(
        "attention_dummies", "Dummy weight gradients of attention", 96, Place.LAYER,
        tuple(row for heads, shapes in ATTENTION.items() for row in _dummies(shapes, (), heads=(heads,))),
    ),
    Component(
        "mlp_dummies", "Dummy weight gradients of the MLP", 97, Place.DENSE,
        tuple(
            row for heads, attention in ATTENTION.items() for mlp, shapes in MLP.items()
            for row in _dummies(shapes, tuple(attention.values()), heads=(heads,), mlp=(mlp,))
        ),
    ),
)
