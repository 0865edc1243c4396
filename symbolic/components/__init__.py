"""The components of the model, one file each. A new file with ``COMPONENTS``, here or in a room, is a new component."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from ..ledger import Component
from .weight_gradients import with_dummies


@cache
def all_components() -> tuple[Component, ...]:
    """Return every component, in the order in which a token meets them.

    Raises ValueError if two components or two rows of a component share a name.
    """
    modules = sorted(info.name for info in walk_packages(__path__, f"{__name__}.") if not info.ispkg)
    components = [part for name in modules for part in import_module(name).COMPONENTS]
    components = list(with_dummies(tuple(components)))
    components.sort(key=lambda component: (component.order, component.name))
    _refuse_duplicates([component.name for component in components], "component")
    for component in components:
        _refuse_duplicates([tensor.name for tensor in component.tensors], f"row of {component.name}")
    return tuple(components)


def _refuse_duplicates(names: list[str], kind: str) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{kind} defined twice: {', '.join(repeated)}")
