"""Transients whose size is a sum of other terms: a recomputed layer, gathered parameters, temporaries of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from sympy import Expr, Max

from ..implementations import Implementation
from ..parallel.pipeline import chunks
from ..parallel.schedules import SCHEDULES
from ..parameters import symbols
from ..sources import BY_KEY
from ..terms import TermSet, product

rfull, rn, Lr = symbols("rfull rn Lr")


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One transient of rank r that is not a single tensor.

    ``size`` makes its expression from the terms that exist already; ``options`` restricts it to
    implementations that chose one of the given variants.
    """

    name: str
    title: str
    sites: tuple[str, ...]
    size: Callable[[TermSet, Implementation], Expr]
    source: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an aggregate that cites nothing."""
        if self.source not in BY_KEY:
            raise ValueError(f"aggregate {self.name}: unknown source {self.source!r}")


def _recomputed_layer(terms: TermSet, implementation: Implementation) -> Expr:
    """The saved tensors of the layer at work; those of both kinds of layers are never there together."""
    kinds = [terms[f"{layer}.saved"].symbol for layer in ("layer", "expert_layer") if f"{layer}.saved" in terms]
    return product(rfull, Max(*kinds))


def _recomputed_group(terms: TermSet, implementation: Implementation) -> Expr:
    return product(rn, _recomputed_layer(terms, implementation))


def _awaiting_weight(terms: TermSet, implementation: Implementation) -> Expr:
    """What zero bubble keeps besides: gradients of the chunks between both halves of their backward pass.

    One of several moments of a schedule is the peak; each has its own numbers of chunks in flight and waiting.
    """
    choices = implementation.choices
    schedule = SCHEDULES[choices["schedule"]]
    chunk = Lr / chunks(choices)
    kinds = [layer for layer in ("layer", "expert_layer") if f"{layer}.saved" in terms]
    saved = Max(*(terms[f"{layer}.saved"].symbol for layer in kinds))
    gradients = Max(*(terms[f"{layer}.output_gradients"].symbol for layer in kinds))
    return Max(*(
        chunk * ((in_flight - schedule.in_flight) * saved * (1 - rfull) + awaiting * gradients)
        for in_flight, awaiting in schedule.peaks
    ))


#: Schedules that split the backward pass into halves, for inputs and for weights.
SPLIT_BACKWARD = tuple(name for name, item in SCHEDULES.items() if item.awaiting_weight != 0)

AGGREGATES: tuple[Aggregate, ...] = (
    Aggregate("recomputed_layer", "Layer recomputed from its input", ("layer_backward",), _recomputed_layer,
              "korthikanti2022", {"recompute_method": ("each", "block", "every")}),
    Aggregate("recomputed_group", "Layers recomputed from one input", ("layer_backward",), _recomputed_group,
              "megatron_core", {"recompute_method": ("uniform",)}),
    Aggregate("awaiting_weight", "Output gradients kept for weight-backward passes", ("after_forward", "layer_backward"),
              _awaiting_weight, "pytorch", {"schedule": SPLIT_BACKWARD}),
)


@cache
def aggregates_of(implementation: Implementation) -> tuple[Aggregate, ...]:
    """The aggregates that ``implementation`` has."""
    return tuple(
        item for item in AGGREGATES
        if all(implementation.choices[axis] in allowed for axis, allowed in item.options.items())
    )
