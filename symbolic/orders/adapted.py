"""Adapters of PEFT beside projections of Transformers: the order of what their two products make in both passes.

Forward: the frozen product, the products with both matrices, the scaled result, and the sum. Backward: the scaled
gradient, gradients of the second matrix, of what lies between them and of the first one, and two gradients of the
input. PyTorch adds gradients of an input in a new tensor while it holds the result of one product, and in place behind
that: ``tests/oracles/pytorch/allocation_orders.py`` records it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr

from ..dimension import ONE, Dimension
from ..dimensions import BATCH, FFN, RANK, SEQUENCE
from ..parameters import symbols
from .words import KEY, QUERY, WHOLE, Passing

(qkn,) = symbols("qkn")

INNER = (SEQUENCE, BATCH, FFN)
_ATTENTION, _MLP = "attention_adapters", "swiglu_adapters"
#: Component of the adapter of each projection, and its outputs.
PROJECTIONS: Mapping[str, tuple[str, tuple[Dimension, ...]]] = {
    "q": (_ATTENTION, QUERY), "k": (_ATTENTION, KEY), "v": (_ATTENTION, KEY), "o_proj": (_ATTENTION, WHOLE),
    "gate": (_MLP, INNER), "up": (_MLP, INNER), "down": (_MLP, WHOLE),
}
_INPUTS = {"o_proj": QUERY, "down": INNER}
#: Projections that have adapters.
ADAPTERS: Mapping[str, tuple[str, ...]] = {
    "none": (), "q_v": ("q", "v"), "qkv": ("q", "k", "v"), "attention": ("q", "k", "v", "o_proj"),
    "all_linear": tuple(PROJECTIONS),
}
#: Projections whose outputs have norms, in models that have such.
_NORMED = ("q", "k")


def passing(options: Mapping[str, tuple[str, ...]]) -> tuple[Passing, ...]:
    """Return the tensors that only pass, with each set of adapters beside these options."""
    tensors = []
    for name, (_, outputs) in PROJECTIONS.items():
        own = {**options, "adapters": tuple(option for option, names in ADAPTERS.items() if name in names)}

        def one(part: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE,
                name: str = name, own: Mapping[str, tuple[str, ...]] = own) -> Passing:
            return Passing(f"{name}.{part}", shape, 2, meaning, "peft", when, own)
        for kind, when in (("", qkn), ("_unnormed", 1 - qkn)) if name in _NORMED else (("", ONE),):
            tensors += [one(f"base{kind}", outputs, "output of the frozen matrix", when),
                      one(f"scaled{kind}", outputs, "scaled output of the adapter", when)]
        inputs = _INPUTS.get(name, WHOLE)
        tensors += [
            one("added", outputs, "output of the adapter"),
            one("scaled_gradient", outputs, "scaled gradient of the adapter's output"),
            one("between_gradient", (SEQUENCE, BATCH, RANK), "gradient of the output of the first matrix"),
            one("adapter_gradient", inputs, "gradient of the input from the first matrix"),
            one("frozen_gradient", inputs, "gradient of the input from the frozen matrix"),
            one("input_sum", inputs, "sum of both"),
        ]
    return tuple(tensors)


def forward(name: str, output: str, names: tuple[str, ...], normed: str = "", last: bool = False) -> str:
    """Return the words of a projection of which the word ``output`` makes the result.

    ``normed`` are the words of a norm behind it, if models may have one; ``last``: nothing of the layer is saved later.
    """
    if name not in names:
        return f"{output} {normed}".strip()
    kinds, row = ("", "_unnormed") if normed else ("",), f"{PROJECTIONS[name][0]}.{name}.adapter_between"
    base, scaled = (" ".join(f"+{name}.{part}{kind}" for kind in kinds) for part in ("base", "scaled"))
    end = " end" * last
    summed = f" {normed} -{name}.scaled_unnormed -{name}.base_unnormed" if normed else ""
    return (f"{base} save:{row}{end} +{name}.added drop:{row} {scaled} -{name}.added {output}"
            f" -{name}.scaled -{name}.base{summed}")


def of_matrices(name: str, freed: str = "", scaled: bool = True) -> str:
    """Return the words of the backward pass through an adapter's matrices; ``freed`` frees its input.

    ``scaled`` makes the gradient of its output too.
    """
    row = f"{PROJECTIONS[name][0]}.{name}"
    start = f"+{name}.scaled_gradient " * scaled
    return (f"{start}grad:{row}.adapter_b +{name}.between_gradient -{name}.scaled_gradient"
            f" free:{row}.adapter_between added grad:{row}.adapter_a +{name}.adapter_gradient"
            f" -{name}.between_gradient {freed} added").replace("  ", " ")
