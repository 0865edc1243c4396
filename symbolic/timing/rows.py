"""The work that an implementation does: products, streams and transfers, each with its size on one rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from sympy import Expr, Integer

from ..accounts.rows import components_of, is_expert, kept_rows, local_shape
from ..axis import fits
from ..choices import ADDED, absent_values, trains_copies
from ..dimension import Dimension
from ..dimensions import EXPERTS, SEQUENCE
from ..implementations import Implementation
from ..ledger import Component, Role
from ..parallel.groups import is_frozen
from ..parameters import symbol, symbols
from ..recompute import REGIONS
from ..terms import product
from ..work import BOTH_GRADIENTS, Kernel, Product, Stream, Transfer, Work

(c,) = symbols("c")
#: The length of products whose rate does not depend on it.
WHOLE = Integer(1)

#: Recipes of FP8 run linear layers at the peak of 8 bits; the head and attention stay at 16.
LINEAR = "linear"


@dataclass(frozen=True)
class Matmul:
    """One matrix product on one rank: its sides, as many separate products as ``groups``, and who runs it.

    ``backward`` counts such products in the backward pass, ``length`` the tokens of one kernel of core attention.
    """

    module: str
    rate: str
    rows: Expr
    inner: Expr
    columns: Expr
    factor: Expr
    groups: Expr
    backward: int
    length: Expr = WHOLE

    @property
    def flops(self) -> Expr:
        """Multiplications and additions of the forward pass."""
        return product(Integer(2), self.factor, self.rows, self.inner, self.columns)


@cache
def matmuls(component: Component, implementation: Implementation) -> tuple[Matmul, ...]:
    """Return the products of a component: of its weights with tokens, and those without weights."""
    choices = implementation.choices
    products = []
    for row in kept_rows(implementation):
        tensor = row.tensor
        if row.component is component and tensor.role is Role.WEIGHT and tensor.tokens:
            *experts, outputs, inputs = local_shape(multiplied(tensor.shape), choices)
            products.append(Matmul(
                tensor.module, LINEAR, product(*local_shape(tensor.tokens, choices)), inputs, outputs,
                tensor.when.xreplace(_absent(implementation)), product(*experts),
                _gradients(component, choices, is_expert(tensor) or tensor.module == "router"),
            ))
    absent = _absent(implementation)
    # Where heads are exchanged for tokens, attention runs over the whole sequence.
    length = product(*local_shape((SEQUENCE,), choices), c if choices["context"] == "all_to_all" else Integer(1))
    products += [
        Matmul(
            item.module, item.kernel.value, product(*local_shape(item.rows, choices)),
            product(*local_shape(item.inner, choices)),
            product(*local_shape(item.columns, choices)), product(item.share, item.when.xreplace(absent)), Integer(1),
            item.backward - (BOTH_GRADIENTS - _gradients(component, choices) if item.weights else 0), length,
        )
        for item in _chosen(component, implementation) if isinstance(item, Product)
    ]
    return tuple(products)


def _gradients(component: Component, choices: Mapping[str, str], summed: bool = False) -> int:
    """Return products of a matrix of weights in the backward pass: frozen ones pass the gradient on and have none.

    Those of experts and routers have one where adapters are added to them, which is that of the sum (``summed``). A
    copy of a head that is trained beside it is run in its place.
    """
    kinds = ("weights",) if component.name == "router" else ADDED
    added = summed and choices["adapters"] == "all_linear" and choices["expert_adapters"] in kinds
    copied = component.name == "head" and trains_copies(choices)
    return 1 if is_frozen(component, choices) and not (added or copied) else BOTH_GRADIENTS


@dataclass(frozen=True)
class Moved:
    """Bytes that memory moves on one rank for one stream, forward and backward, and the kernels of each."""

    module: str
    forward: Expr
    backward: Expr
    kernels: int


def multiplied(shape: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """Return the dimensions of a weight in a product, for which ranks may gather it."""
    return tuple(dimension.gathered or dimension for dimension in shape)


@cache
def streams(component: Component, implementation: Implementation) -> tuple[Moved, ...]:
    """Return the streams of a component."""
    absent, choices = _absent(implementation), implementation.choices
    return tuple(
        Moved(
            item.module, product(Integer(item.forward), *local_shape(item.shape, choices), item.when.xreplace(absent)),
            product(Integer(item.backward), *local_shape(item.shape, choices), item.when.xreplace(absent)),
            item.kernels,
        )
        for item in _chosen(component, implementation) if isinstance(item, Stream)
    )


@dataclass(frozen=True)
class Sent:
    """One transfer: the bytes it makes whole, and passes over the ring in each direction."""

    row: Transfer
    size: Expr
    forward: Expr
    backward: Expr
    hidden: Expr


@cache
def transfers(component: Component, implementation: Implementation) -> tuple[Sent, ...]:
    """Return the transfers of a component."""
    absent, choices = _absent(implementation), implementation.choices
    return tuple(
        Sent(item, product(Integer(item.bytes), *local_shape(item.shape, choices)),
             *(product(passes, item.when.xreplace(absent)) for passes in (item.forward, item.backward, item.hidden)))
        for item in _chosen(component, implementation) if isinstance(item, Transfer)
    )


def repeated(module: str, implementation: Implementation) -> Expr:
    """Return a 0/1 expression of the switches: 1 if a module runs once more for its layer's backward pass."""
    once: Expr = Integer(1)
    for region in REGIONS:
        if module in region.repeated(implementation.choices):
            once *= 1 - symbol(region.switch)
    return Integer(1) - once


def worked_dimensions(implementation: Implementation) -> tuple[Dimension, ...]:
    """Return the dimensions that work rows have, each once."""
    dimensions: list[Dimension] = [EXPERTS]
    for row in kept_rows(implementation):
        dimensions += row.tensor.tokens
        dimensions += (dimension.gathered for dimension in row.tensor.shape if dimension.gathered)
    for component in components_of(implementation):
        for item in _chosen(component, implementation):
            dimensions += (*item.rows, *item.inner, *item.columns) if isinstance(item, Product) else item.shape
    return tuple(dict.fromkeys(dimensions))


def _chosen(component: Component, implementation: Implementation) -> Iterator[Work]:
    choices = implementation.choices
    for item in component.work:
        if fits(item.options, choices):
            yield item


def _absent(implementation: Implementation) -> Mapping[Expr, Expr]:
    return absent_values(implementation.choices)


#: How fast a product is run: its peak, and the share of it that is reached, by letters.
RATES: dict[str, tuple[str, str]] = {
    LINEAR: ("Fm", "em"), Kernel.MATMUL.value: ("Fa", "em"), Kernel.ATTENTION.value: ("Fa", "ea"),
}
