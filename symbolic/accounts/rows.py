"""The ledger rows that an implementation has, each with its size on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from sympy import Expr, Integer

from ..choices import EVERY_ABSENT, absent_letters, absent_values, values_without
from ..components import all_components
from ..dimension import Dimension
from ..dimensions import OF_EXPERTS
from ..implementations import Implementation
from ..ledger import Component, Place, Role, Tensor
from ..parallel.data import states
from ..parallel.dimensions import SHAPE_RULES
from ..parallel.groups import GROUPS
from ..parallel.rules import local_name, local_size
from ..parallel.weights import shapes
from ..parameters import symbol
from ..recompute import keep
from ..terms import Contribution, product, reduce_switches, term_symbol, total

rmlp = symbol("rmlp")
#: Degrees that only some choices have, as these are without them.
_ALL_ABSENT = {rule.degree: Integer(1) for rule in SHAPE_RULES if rule.degree in EVERY_ABSENT}


@cache
def components_of(implementation: Implementation) -> tuple[Component, ...]:
    """Return the components that ``implementation`` has, in the order in which a token meets them."""
    return tuple(component for component in all_components() if component.chosen(implementation.choices))


def chosen_for(component: Component, implementation: Implementation) -> Implementation:
    """Return the implementation whose choices a component has: what only further predictions have, has theirs."""
    return implementation.predicting if component.place is Place.MTP else implementation


@cache
def kept_rows(implementation: Implementation) -> tuple[Contribution, ...]:
    """Return the ledger rows of ``implementation``, each with its bytes (elements for weights) on one rank.

    A storage that several rows share is counted at the first row that is kept: each later row counts
    only where all earlier ones are dropped. Raises ValueError for a storage with two sizes.
    """
    absent_now = absent_values(implementation.choices)
    rows: list[Contribution] = []
    absent: dict[str, Expr] = {}
    shapes: dict[str, tuple[Expr | int, ...]] = {}
    for component in components_of(implementation):
        choices = chosen_for(component, implementation).choices
        for row in component.tensors:
            if not row.chosen(choices):
                continue
            tensor = row.in_precision(choices)
            shape = local_shape(tensor.shape, choices)
            kept = keep(component, tensor, choices) * tensor.when.xreplace(absent_now)
            if tensor.storage:
                contents = (tensor.bytes, *shape)
                if shapes.setdefault(tensor.storage, contents) != contents:
                    raise ValueError(f"storage {tensor.storage} has two sizes")
                dropped_before = absent.get(tensor.storage, Integer(1))
                absent[tensor.storage] = reduce_switches(dropped_before * (1 - kept))
                kept = reduce_switches(kept * dropped_before)
            elements = product(*shape) if tensor.role is Role.WEIGHT else product(Integer(tensor.bytes), *shape)
            expression = product(elements, kept)
            if expression != 0:
                rows.append(Contribution(component, tensor, expression))
    return tuple(rows)


def saved_by(modules: tuple[str, ...], place: Place, implementation: Implementation) -> Expr:
    """Return bytes that modules of a layer save of one micro-batch, if its MLP is not recomputed."""
    return total(*(
        row.expression.xreplace({rmlp: Integer(0)}) for row in kept_rows(implementation)
        if row.component.place is place and row.tensor.role is Role.ACTIVATION and row.tensor.module in modules
    ))


def chosen_size(dimension: Dimension, choices: Mapping[str, str]) -> Expr:
    """Return the size of a dimension on one rank with these choices, in elements."""
    return _size_without(dimension, absent_letters(choices))


@cache
def _size_without(dimension: Dimension, absent: tuple[str, ...]) -> Expr:
    return local_size(dimension, SHAPE_RULES).xreplace(values_without(absent))


def local_shape(shape: tuple[Dimension, ...], choices: Mapping[str, str] | None = None) -> tuple[Expr, ...]:
    """Return the sizes of a shape on one rank; a split dimension appears as the symbol of its local size.

    Raises ValueError for a dimension that only some choices split, if no choices are given.
    """
    return tuple(
        term_symbol(local_name(dimension)) if _is_split(dimension, choices) else dimension.size for dimension in shape
    )


def _is_split(dimension: Dimension, choices: Mapping[str, str] | None) -> bool:
    if choices is not None:
        return bool(chosen_size(dimension, choices) != dimension.size)
    split = local_size(dimension, SHAPE_RULES)
    if split != dimension.size and split.xreplace(_ALL_ABSENT) == dimension.size:
        raise ValueError(f"{dimension.name} is split with some choices only: say which")
    return bool(split != dimension.size)


def is_expert(tensor: Tensor) -> bool:
    """Return True for the weights of routed experts, whose data-parallel group is another."""
    return not set(OF_EXPERTS).isdisjoint(tensor.shape)


def used_dimensions(implementation: Implementation) -> tuple[Dimension, ...]:
    """Return the dimensions that rows of ``implementation`` have, each once."""
    choices = implementation.choices
    apart = any(state.count is not None for group in GROUPS for state in states(choices, group))
    dimensions = [
        dimension for row in (*kept_rows(implementation), *kept_rows(implementation.predicting))
        for shape in (row.tensor.shape, *(shapes(row.tensor, choices) if apart else ())) for dimension in shape
    ]
    return tuple(dict.fromkeys(dimensions))


def weight_tensors(implementation: Implementation) -> tuple[tuple[Component, Tensor, Expr], ...]:
    """Component, row and elements on one rank of every trained parameter, in the order of the model."""
    return tuple(
        (row.component, row.tensor, without_condition(row, implementation))
        for row in kept_rows(implementation) if row.tensor.role is Role.WEIGHT
    )


def without_condition(row: Contribution, implementation: Implementation) -> Expr:
    """Return the elements of a weight row without the condition under which it exists."""
    return product(*local_shape(row.tensor.shape, implementation.choices))
