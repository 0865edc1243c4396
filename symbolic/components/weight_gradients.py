"""Dummy weight gradients: what autograd gets for a weight whose gradient the product itself adds to the buffer.

Transformer Engine keeps one for every distinct shape, from the first backward pass on, whatever layer or
micro-batch it is for. The gradients themselves are in the gradient buffer, which is counted elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from sympy import Add, And, Eq, Expr, Integer, fraction

from ..choices import BY_NAME, MEGATRON_PEAKS
from ..dimension import ONE, Dimension
from ..dimensions import EXPERTS, HIDDEN, VOCAB
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor
from ..parallel.dimensions import SHAPE_RULES
from ..parallel.mesh import FURTHER
from ..parallel.rules import local_size
from ..parameters import symbols

(t,) = symbols("t")

_FUSED = ("fused",)


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
    return local_size(dimension, tuple(rule for rule in SHAPE_RULES if rule not in FURTHER)) * t


Shapes = dict[str, Shape]

HEAD = Shape(VOCAB, HIDDEN)


def linear_shapes(components: Iterable[Component], mlp: str = "") -> Shapes:
    """Return the shapes of the linear layers of ``components`` with fused projections, by the names of weights.

    With ``mlp``, without the layers of components that have other options of that axis.
    """
    shapes: Shapes = {}
    for component in components:
        for tensor in component.tensors:
            fused = "fused" in tensor.options.get("projections", _FUSED)
            other = bool(mlp) and mlp not in tensor.options.get("mlp", (mlp,))
            if not fused or other or not tensor.tokens or tensor.module == "router":
                continue
            rows, columns = (dimension for dimension in tensor.shape if dimension is not EXPERTS)
            name = tensor.name.removesuffix(".weight")
            shapes[f"{component.name}_{name}" if name in shapes else name] = Shape(rows, columns, tensor.when)
    return shapes


def _by_option(components: tuple[Component, ...], axis: str, place: Place) -> dict[str, Shapes]:
    """Return the shapes of the linear layers at a place, by the option of an axis; an option without any has none."""
    shapes = {
        option: linear_shapes(
            component for component in components
            if component.place is place and option in component.options.get(axis, ())
        )
        for option in BY_NAME[axis].options
    }
    return {option: shared for option, shared in shapes.items() if shared}


def differs(shape: Shape, others: tuple[Shape, ...]) -> Expr:
    """1 if a rank's part of ``shape`` has other sizes than that of each of ``others``, else 0."""
    distinct: Expr = ONE
    for other in others:
        distinct *= 1 - _same(shape, other) * other.exists
    return distinct


@cache
def _same(shape: Shape, other: Shape) -> Expr:
    """1 if both have the same sizes on every rank; then the sums of their sizes are the same too."""
    if _has_one_sign(sum(shape.sizes) - sum(other.sizes)):
        return Integer(0)
    pairs = {frozenset(fraction(left / right)) for left, right in zip(shape.sizes, other.sizes, strict=True)}
    return Iverson(And(*(Eq(*sorted(pair, key=str)) for pair in pairs if len(pair) == 2)))


def _has_one_sign(size: Expr) -> bool:
    """Return True for a sum of products of sizes of one sign; SymPy takes long to say that it is not 0."""
    parts = [part.as_coeff_Mul() for part in Add.make_args(size)]
    return size != 0 and len({number > 0 for number, _ in parts}) == 1 and all(part.is_positive for _, part in parts)


def _dummy(name: str, shape: Shape, others: tuple[Shape, ...], **options: tuple[str, ...]) -> Tensor:
    return Tensor(
        f"dummy.{name}", "weight_gradient", Role.BUFFER, (shape.rows, shape.columns), 2, Lifetime.SHARED,
        "transformer_engine", "bf16 dummy gradient of this shape", when=shape.exists * differs(shape, others),
        options={"weight_gradient": ("fused",), "peak": MEGATRON_PEAKS, **options},
    )


def _dummies(
    prefix: str, shapes: Shapes, before: tuple[Shape, ...], **options: tuple[str, ...]
) -> tuple[Tensor, ...]:
    """Return the rows of several shapes, each of which exists unless one before it is the same."""
    kept = tuple(shapes.values())
    return tuple(
        _dummy(f"{prefix}.{name}", shape, (*before, *kept[:place]), **options)
        for place, (name, shape) in enumerate(shapes.items())
    )


_NOTE = "Layers of both kinds on one stage are taken to have different shapes."


def with_dummies(components: tuple[Component, ...]) -> tuple[Component, ...]:
    """Return all components with their dummy gradients: three components, and rows of the head.

    The head has a row for each kind of layers, as one of a layer may have the same shape.
    """
    # Adapters are counted without the moments of a step, at which alone there are dummies.
    plain = tuple(component for component in components if "adapters" not in component.options)
    attentions, mlps = _by_option(plain, "heads", Place.LAYER), _by_option(plain, "mlp", Place.DENSE)
    of_experts = [component for component in plain if component.place is Place.EXPERTS]
    of_head = tuple(
        _dummy(f"{heads}.{mlp}", HEAD, (*attention.values(), *shapes.values()), heads=(heads,), mlp=(mlp,))
        for heads, attention in attentions.items() for mlp, shapes in mlps.items()
    )
    dummies = (
        Component(
            "attention_dummies", "Dummy weight gradients of attention", 96, Place.LAYER,
            tuple(row for heads, shapes in attentions.items() for row in _dummies(heads, shapes, (), heads=(heads,))),
        ),
        Component(
            "mlp_dummies", "Dummy weight gradients of the MLP", 97, Place.DENSE,
            tuple(
                row for heads, attention in attentions.items() for mlp, shapes in mlps.items()
                for row in _dummies(f"{heads}.{mlp}", shapes, tuple(attention.values()), heads=(heads,), mlp=(mlp,))
            ),
            note=_NOTE,
        ),
        Component(
            "expert_dummies", "Dummy weight gradients of experts", 98, Place.EXPERTS,
            tuple(
                row for heads, attention in attentions.items() for mlp in mlps
                for row in _dummies(f"{heads}.{mlp}", linear_shapes(of_experts, mlp), tuple(attention.values()),
                                    heads=(heads,), mlp=(mlp,))
            ),
            note=_NOTE,
            options={"layers": ("experts",)},
        ),
    )
    return (*(
        replace(component, tensors=(*component.tensors, *of_head)) if component.name == "head" else component
        for component in components
    ), *dummies)


#: All are made from the other components.
COMPONENTS: tuple[Component, ...] = ()
