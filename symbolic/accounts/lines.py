"""The lines of an account, as data: which terms of rank r add up to its total, with component, role and moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..components import all_components
from ..ledger import SITES, Component, Held, Lifetime, Role
from ..parallel.groups import GROUPS
from ..parallel.weights import is_linear
from .aggregates import AGGREGATES
from .pytorch.buckets import NAME as BUCKETS
from .rows import is_expert
from .stage import PART, STATE_ROLES, held_until
from .units import COUNTED_ROLES


class Line(NamedTuple):
    """The subject of a term of rank r.

    ``moment`` is that of a transient, and of saved tensors that are left there: it exists at no other. ``held`` is the
    least of ``Held`` at whose moments it still exists.
    """

    component: str
    role: Role
    moment: str = ""
    held: Held = Held.NOTHING


def lines() -> dict[str, Line]:
    """Return every line that an account may have, by the name of its term, whatever the choices are."""
    named = {name: line for component in all_components() for name, line in _of_component(component)}
    named |= {f"stage.{item.name}.{site}": Line(item.name, item.role, site)
              for item in AGGREGATES for site in item.sites}
    named |= {name: line for group in GROUPS for name, line in _of_states("padding", group.prefix)}
    return named | {f"stage.{PART}.{Role.OPTIMIZER.value}": Line(PART, Role.OPTIMIZER),
                    f"stage.{BUCKETS}.{Role.BUFFER.value}": Line(BUCKETS, Role.BUFFER)}


def _of_component(component: Component) -> Iterator[tuple[str, Line]]:
    weights = [row for row in component.tensors if row.role is Role.WEIGHT]
    experts = any(is_expert(row) for row in weights)
    linear = any(is_linear(component, row) for row in weights)
    for group in GROUPS:
        if weights and (experts or not group.expert) and (linear or not group.fp8):
            yield from _of_states(component.name, group.prefix)
    for role in COUNTED_ROLES:
        if any(row.role is role and row.lifetime is not Lifetime.SITE for row in component.tensors):
            held = held_until(component) if role is Role.ACTIVATION else Held.NOTHING
            yield f"stage.{component.name}.{role.value}", Line(component.name, role, held=held)
    for site in SITES:
        if any(site in row.sites for row in component.tensors):
            yield f"stage.{component.name}.{site}", Line(component.name, Role.TRANSIENT, site)


def _of_states(component: str, prefix: str) -> Iterator[tuple[str, Line]]:
    for role in STATE_ROLES:
        yield f"stage.{component}.{prefix}{role.value}", Line(component, role)
