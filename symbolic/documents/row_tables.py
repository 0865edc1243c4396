"""Data for the tables of single rows: sizes, places and lifetimes, and the order of a step's allocations."""

from __future__ import annotations

from typing import Any

from ..accounts.aggregates import aggregates_of
from ..accounts.layers.scripts import of_tapes
from ..accounts.row_sizes import STATES, row_sizes
from ..accounts.rows import kept_rows
from ..accounts.units import is_layer_input
from ..implementations import Implementation
from ..ledger import Role
from ..orders.fsdp import SAME_MEMORY
from ..orders.step import births, joined, modules, scripts, walked
from ..orders.words import Birth
from ..parallel.data import states
from ..parallel.groups import is_frozen
from .evaluator import as_written, evaluator


def row_tables(implementation: Implementation) -> dict[str, Any]:
    """Data of ``rows.py.jinja``."""
    choices = implementation.choices
    born = {birth.state: birth for birth in births(choices)}
    made, rows = walked(choices), kept_rows(implementation)
    names = {f"{row.component.name}.{row.tensor.name}" for row in rows}
    kept = [state for state in states(choices) if state.role in STATES and state.count is None]
    return {
        **evaluator(f"Rows of the ledger, one by one: {implementation.title}", row_sizes(implementation), (),
                    form=as_written),
        "rows": [
            {"name": f"{row.component.name}.{row.tensor.name}", "component": row.component.name,
             "place": row.component.place.name, "role": row.tensor.role.value, "lifetime": row.tensor.lifetime.name,
             "module": row.tensor.module, "sites": row.tensor.sites, "of_layer": is_layer_input(row.component)}
            for row in rows
        ],
        "frozen": [f"{row.component.name}.{row.tensor.name}" for row in rows
                   if row.tensor.role is Role.WEIGHT and is_frozen(row.component, choices)],
        "scripts": scripts(choices),
        "tapes": {} if (tapes := of_tapes(implementation)) is None else tapes.passes,
        "modules": [name for name in modules(choices) if name in names],
        "joined": {name: parts for name, parts in joined(choices).items() if names.issuperset(parts)},
        "same": {row: other for row, other in SAME_MEMORY.items() if {row, other} <= names},
        "states": [
            {"name": state.name, "role": state.role.value, "piece": birth.piece, "late": birth.late}
            for state in kept
            for birth in (born.get(state.name, Birth(state.name, late=state.role is Role.OPTIMIZER
                                                       and state.name != "master_weight")),)
        ],
        "sums": {
            f"stage.{item.name}.{site}": (site, item.walked or item.name in made)
            for item in aggregates_of(implementation) for site in item.sites
        },
    }
