"""Scope of a document: the whole ledger, or the part that some implementations use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from sympy import Basic, Symbol

from ..accounts import build
from ..accounts.aggregates import AGGREGATES, Aggregate, aggregates_of
from ..axis import fits
from ..choices import AXES, absent_values
from ..components import all_components
from ..dimension import Dimension
from ..dimensions import DIMENSIONS
from ..implementations import IMPLEMENTATIONS, Implementation
from ..ledger import SITES, Component, Role, Tensor
from ..parallel.dimensions import SHAPE_RULES
from ..parallel.legality import fixed_values, rules_for
from ..parallel.rules import ParallelRule
from ..parameters import PARAMETERS, Parameter
from ..recompute import REGIONS, Region
from ..timing import is_timed
from ..verdict import RULE_80, VERDICTS
from ..work import Product, Transfer, Work
from .forms import Form, forms, row_sizes, shown, time_forms


@dataclass(frozen=True, eq=False)
class Scope:
    """The implementations of a document; ``whole`` if it has everything else that the ledger has too.

    Sections that speak of one implementation speak of the first, ``main``.
    """

    implementations: tuple[Implementation, ...]
    whole: bool = False

    @property
    def main(self) -> Implementation:
        """The implementation of sections that speak of one."""
        return self.implementations[0]

    @property
    def timed(self) -> bool:
        """Tell whether the main implementation has formulas of step time."""
        return is_timed(self.main)

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """The components with rows of tensors."""
        return tuple(item for item in all_components() if self.whole or self.tensors(item))

    @cached_property
    def worked_components(self) -> tuple[Component, ...]:
        """The components that do something."""
        return tuple(item for item in all_components() if self.work(item) or self.multiplied(item))

    def tensors(self, component: Component) -> tuple[Tensor, ...]:
        """Return the rows of a component: all, or those that are kept in some configuration."""
        return tuple(item for item in component.tensors if self.whole or (component.name, item.name) in self._kept)

    def multiplied(self, component: Component) -> tuple[Tensor, ...]:
        """Return the weights of a component that tokens are multiplied with."""
        return tuple(item for item in self.tensors(component) if item.role is Role.WEIGHT and item.tokens)

    def work(self, component: Component) -> tuple[Work, ...]:
        """Return the rows of work of a component."""
        chosen = [item.choices for item in self.implementations if component.chosen(item.choices)]
        return tuple(item for item in component.work if self.whole or any(
            fits(item.options, choices) for choices in chosen
        ))

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The dimensions that rows have."""
        used = {
            dimension for component in (*self.components, *self.worked_components)
            for shape in self._shapes(component) for dimension in shape
        }
        return tuple(item for item in DIMENSIONS if self.whole or item in used)

    @property
    def parallel_rules(self) -> tuple[ParallelRule, ...]:
        """The parallel dimensions that split some dimension and may have more than one rank."""
        return tuple(item for item in SHAPE_RULES if self.whole or (
            any(dimension in item.splits for dimension in self.dimensions) and not self._is_fixed(item.degree)
        ))

    @property
    def regions(self) -> tuple[Region, ...]:
        """The parts of a layer that can be recomputed, in components that are here."""
        modules = {item.module for component in self.components for item in self.tensors(component)}
        return tuple(item for item in REGIONS if self.whole or (
            (not item.modules or modules & {*item.modules}) and not any(
                fixed_values(implementation).get(item.switch) == 0 for implementation in self.implementations
            )
        ))

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The transients that are sums of other terms."""
        used = {item for implementation in self.implementations for item in aggregates_of(implementation)}
        return tuple(item for item in AGGREGATES if self.whole or item in used)

    @property
    def sites(self) -> tuple[str, ...]:
        """The moments of a step at which something is counted."""
        parts = {part for item in self.implementations for name in build(item).terms for part in name.split(".")}
        return tuple(name for name in SITES if self.whole or name in parts)

    def options(self, axis: str) -> tuple[str, ...]:
        """Return the options of an axis: all, or those that are chosen."""
        known = next(item for item in AXES if item.name == axis).options
        chosen = {item.choices[axis] for item in self.implementations}
        return tuple(option for option in known if self.whole or option in chosen)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that some formula, size, condition or rule has."""
        return tuple(item for item in PARAMETERS if self.whole or item.symbol in self._symbols)

    @property
    def forms(self) -> tuple[Form, ...]:
        """The terms that are shown, those of time behind those of memory."""
        memory_forms = [forms(item)[name] for item in self.implementations for name in shown(build(item))]
        return (*memory_forms, *(time_forms(self.main).values() if self.timed else ()))

    @cached_property
    def _kept(self) -> set[tuple[str, str]]:
        return {name for item in self.implementations for name, size in row_sizes(item).items() if size != 0}

    @cached_property
    def _symbols(self) -> set[Basic]:
        expressions: list[Basic] = [form.written for form in self.forms]
        expressions += [form.simplified for form in self.forms if form.simplified is not None]
        expressions += [rule.condition for implementation in self.implementations for rule in rules_for(implementation)]
        expressions += [verdict.condition for verdict in (*VERDICTS, *RULE_80)]
        expressions += [dimension.size for dimension in self.dimensions]
        expressions += [item.when for component in self.components for item in self.tensors(component)]
        for component in self.worked_components:
            for item in self.work(component):
                expressions += [item.when, *((item.forward, item.backward) if isinstance(item, Transfer) else ())]
        symbols = set().union(*(expression.free_symbols for expression in expressions))
        return symbols | {rule.degree for rule in self.parallel_rules}

    def _shapes(self, component: Component) -> Iterable[tuple[Dimension, ...]]:
        for tensor in self.tensors(component):
            yield tensor.shape
            yield tensor.tokens
        for item in self.work(component):
            yield (*item.rows, *item.inner, *item.columns) if isinstance(item, Product) else item.shape

    def _is_fixed(self, degree: Symbol) -> bool:
        return all(
            fixed_values(implementation).get(str(degree)) == 1 or degree in absent_values(implementation.choices)
            for implementation in self.implementations
        )


#: All that the ledger has; one section speaks of the time of Megatron-Core.
EVERYTHING = Scope(tuple(IMPLEMENTATIONS.values()), whole=True)
