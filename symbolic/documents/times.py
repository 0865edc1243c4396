"""Step time in documents: the work of every component, and the terms of one implementation."""

from __future__ import annotations

from ..dimension import Dimension
from ..implementations import MEGATRON, Implementation
from ..ledger import Tensor
from ..rates import GROUPS_OF_RANKS
from ..timing.step import candidates
from ..work import Product, Stream, Work
from .forms import Group, time_forms
from .scope import EVERYTHING

#: Terms that stand for many: of ranks with a number put in, and of the model alone.
_COPIES = ("whole", "alone")


def weight_sides(tensor: Tensor) -> str:
    """Return the sides of the product of a matrix of weights with tokens."""
    *_, outputs, inputs = tensor.shape
    return sides(tensor.tokens, (inputs,), (outputs,))


def sides(*parts: tuple[Dimension, ...]) -> str:
    """Return the sides of a product by the names of their dimensions."""
    return " x ".join(" ".join(dimension.name for dimension in part) for part in parts)


def described(item: Work) -> tuple[str, str]:
    """Return the kind of a row of work, and its size in words."""
    if isinstance(item, Product):
        return "product", sides(item.rows, item.inner, item.columns)
    shape = " ".join(dimension.name for dimension in item.shape) or "scalar"
    if isinstance(item, Stream):
        return "stream", f"{shape}: {item.forward} bytes forward, {item.backward} backward"
    return item.ranks.replace("_", " "), f"{shape}: {item.bytes} bytes"


def groups(implementation: Implementation = MEGATRON) -> tuple[Group, ...]:
    """Return the terms of an implementation's step time in the order of a reader."""
    copies = (*candidates(implementation), *_COPIES)
    terms = [form.term for form in time_forms(implementation).values() if form.term.owner not in copies]
    rings = {group.name for group in GROUPS_OF_RANKS}
    own = {item.name for item in EVERYTHING.worked_components}

    def of(*chosen: str) -> tuple[str, ...]:
        return tuple(term.name for term in terms if term.owner in chosen)

    all_groups = (
        Group("Sizes on one rank", of("local")),
        Group("Rings of ranks", of("network", *sorted(rings))),
        Group("Components, for one micro-batch on one rank", of(*own)),
        Group("Blocks, for one micro-batch on one rank", of("layer", "input", "output")),
        Group("Rank $r$", of("stage")),
        Group("One step", of("step")),
        Group("Parts of rank $r$'s step time", of("spent")),
    )
    return tuple(group for group in all_groups if group.terms)


def when(item: Work) -> tuple[str, ...]:
    """Return the kernel choices that a row of work needs, each as ``axis = option``."""
    return tuple(f"{axis} = {' or '.join(allowed)}" for axis, allowed in item.options.items())
