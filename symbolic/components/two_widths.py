"""Attention with heads of two widths: grouped queries in layers with windows, and wider heads in those without."""

from __future__ import annotations

from dataclasses import replace

from sympy import Expr, Gt, Integer

from ..dimension import Dimension
from ..dimensions import (
    BATCH,
    FULL_HEAD_DIM,
    FULL_KV_FEATURES,
    FULL_KV_HEADS,
    FULL_QUERY_FEATURES,
    HEAD_DIM,
    KV_FEATURES,
    KV_HEADS,
    QUERY_FEATURES,
    SEQUENCE,
)
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Tensor, saved
from ..parameters import symbols
from ..work import Product, Work
from ..work_rows import LAYERS_OF_STAGE, norm_work
from .adapters import COMPONENTS as ADAPTERS
from .attention import COMPONENTS as GROUPED
from .attention import KEY, QUERY

s, a, k, kt, kg, dg, same, Lw, rfull = symbols("s a k kt kg dg same Lw rfull")

#: Dimensions of layers without windows for those of layers with them.
_FULL: dict[Dimension, Dimension] = {
    HEAD_DIM: FULL_HEAD_DIM, KV_HEADS: FULL_KV_HEADS, QUERY_FEATURES: FULL_QUERY_FEATURES,
    KV_FEATURES: FULL_KV_FEATURES,
}
#: Rows of the projection of values and of its adapter, which are not there where values are keys.
_OF_VALUES = ("v.weight", "v.bias", "v.weight_cast", "v.input_cast", "v.casts")
_ADAPTER_OF_VALUES = "v.adapter_"
#: Rows of keys and values that Transformers repeats where no kernel of PyTorch shares so wide ones among queries.
_SHARED = ("k", "v")
_WIDEST = 256
#: A single head is repeated by a view, and a single token is not.
_REPEATED = Iverson(Gt(dg, _WIDEST)) * Iverson(a > kg) * Iverson(kg > 1) * Iverson(s > 1)
_KERNELS = ("sdpa", "flash")


def _value_norm() -> tuple[Tensor, ...]:
    """Return the rows of the norm of values, which has no scale."""
    tokens = (SEQUENCE, BATCH, KV_HEADS)
    return tuple(
        saved(f"v_norm.{name}", "v_norm", shape, 4, "transformers", meaning, norm=("eager_power",))
        for name, shape, meaning in (
            ("input_fp32", KEY, "fp32 copy of the values"), ("mean_square", tokens, "fp32 mean square of the values"),
            ("rms", tokens, "fp32 inverse root mean square of the values"))
    )


def _repeated() -> tuple[Tensor, ...]:
    return tuple(
        saved(f"{name}.repeated_wide", "core_attention", QUERY, 2, "transformers",
              f"{meaning} repeated for every query head", when=_REPEATED, attention=_KERNELS)
        for name, meaning in (("k", "keys"), ("v", "values"))
    )


def _handed_on() -> tuple[Tensor, ...]:
    """Return keys and values of the last layer of each kind, which the model offers to later layers."""
    return tuple(
        saved(f"{name}_{kind}", "core_attention", shape, 2, "transformers",
              f"{name} of the last layer {words} a window, kept by the closures of full recompute",
              lifetime=Lifetime.SHARED, when=rfull)
        for kind, words, shape in (("windowed", "with", KEY), ("whole", "without", _full(KEY)))
        for name in ("keys", "values")
    )


def _full(shape: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    return tuple(_FULL.get(dimension, dimension) for dimension in shape)


def _is_of_values(name: str) -> bool:
    return name in _OF_VALUES or name.startswith(_ADAPTER_OF_VALUES)


def _full_row(row: Tensor) -> Tensor:
    """Return a row of a layer without a window for that of a layer with one."""
    when: Expr = row.when.xreplace({k: kg, kt: kg})
    if _is_of_values(row.name):
        when *= 1 - same
    elif row.name in _SHARED:
        when *= 1 - _REPEATED
    return replace(row, shape=_full(row.shape), when=when, tokens=_full(row.tokens),
                   storage=row.storage and f"whole.{row.storage}")


def _full_work(item: Work) -> Work:
    """Return work of a layer without a window for that of a layer with one."""
    if isinstance(item, Product):
        return replace(item, rows=_full(item.rows), inner=_full(item.inner), columns=_full(item.columns))
    when = item.when * (1 - same) if _is_of_values(item.name) else item.when
    return replace(item, shape=_full(item.shape), when=when)


def _of_windows(work: tuple[Work, ...], windowed: Expr) -> tuple[Work, ...]:
    """Return work of layers of one kind, all with a window or all without: of the stage's so many have one."""
    return tuple(replace(item, share=item.share.xreplace({Lw: windowed})) if isinstance(item, Product) else item
                 for item in work)


(_ATTENTION,) = GROUPED
_ATTENTION_ADAPTERS, _ = ADAPTERS
_ROWS = (*_ATTENTION.tensors, *_value_norm())
_WORK = (*_ATTENTION.work, *norm_work("v_norm", "v_norm", KEY))

COMPONENTS = (
    Component(
        "windowed_attention", "Attention of layers with windows", 30, Place.WINDOWED, _ROWS,
        options={"heads": ("two_widths",)}, work=_of_windows(_WORK, LAYERS_OF_STAGE),
    ),
    Component(
        "whole_attention", "Attention of layers without windows", 31, Place.WHOLE,
        (*map(_full_row, (*_ROWS, *_repeated())),),
        note="Heads have a width and a number of their own, and values may be the keys before norm and rotary"
        " embedding. PyTorch's kernels share keys and values of up to 256 elements among queries; Transformers repeats"
        " wider ones.",
        options={"heads": ("two_widths",)}, work=tuple(map(_full_work, _of_windows(_WORK, Integer(0)))),
    ),
    *(Component(
        f"{kind}_attention_adapters", f"Adapters of attention of layers {words} windows", order, place,
        (*map(row, _ATTENTION_ADAPTERS.tensors),), work=(*map(item, _ATTENTION_ADAPTERS.work),),
        options={**_ATTENTION_ADAPTERS.options, "heads": ("two_widths",)},
    ) for kind, words, order, place, row, item in (
        ("windowed", "with", 32, Place.WINDOWED, lambda row: row, lambda item: item),
        ("whole", "without", 33, Place.WHOLE, _full_row, _full_work))),
    Component(
        "handed_on", "Keys and values offered to later layers", 60, Place.STAGE, _handed_on(),
        options={"heads": ("two_widths",)},
    ),
)
