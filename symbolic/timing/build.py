"""All terms of an implementation's step time, in the order in which they can be computed."""

from __future__ import annotations

from functools import cache

from ..accounts import build
from ..accounts.rows import chosen_size
from ..choices import AXES, absent_values
from ..implementations import Implementation
from ..parallel.pipeline import chunks
from ..parallel.rules import local_name
from ..rates import PATH, add_groups
from ..systems import SYSTEMS
from ..terms import TermSet
from .components import add_components
from .data import add_data
from .layers import add_blocks
from .rows import worked_dimensions
from .stage import add_chunks, add_microbatch, add_stage
from .step import add_rates, add_spent, add_step

#: Memory terms that step time depends on.
_OF_MEMORY = ("stage.weight", "stage.gradient", "stage.optimizer")


def is_timed(implementation: Implementation) -> bool:
    """Return True if time has a formula: not for work without rows of time."""
    choices = implementation.choices
    return all(choices[axis.name] not in axis.untimed for axis in AXES)


@cache
def build_all(implementation: Implementation) -> TermSet:
    """Return all terms of an implementation's memory, followed by those of its time."""
    memory = build(implementation)
    terms = TermSet(f"{implementation.name}_all", as_inputs=memory.as_inputs, base=memory)
    terms.include(memory.terms)
    _add_times(terms, implementation)
    return terms


@cache
def build_times(implementation: Implementation) -> TermSet:
    """Return all terms of the time of ``implementation``, from sizes on one rank to tokens per second.

    Definitions, parameters and states are those of its memory. Seconds are rational functions of the parameters of
    the machine, so exact arithmetic gives exact results here too.
    """
    memory = build(implementation)
    terms = TermSet(f"{implementation.name}_time", as_inputs=memory.as_inputs, base=memory)
    _add_times(terms, implementation)
    return terms


def _add_times(terms: TermSet, implementation: Implementation) -> None:
    terms.include(_OF_MEMORY)
    for dimension in worked_dimensions(implementation):
        size = chosen_size(dimension, implementation.choices)
        if size != dimension.size and local_name(dimension) not in build(implementation):
            terms.add(local_name(dimension), size, "elements", f"{dimension.meaning}, of one rank")
    choices = implementation.choices
    has_machines = any(system.across(choices) for system in SYSTEMS)
    # Where stages have machines of their own, what is sent over their borders is a parameter, and no mean is needed.
    links = {group: bandwidth for system in SYSTEMS for group, bandwidth in system.links(choices).items()
             if not (has_machines and group == PATH)}
    add_groups(terms, choices, absent_values(choices), links)
    add_components(terms, implementation)
    add_blocks(terms, implementation)
    add_stage(terms, implementation)
    add_data(terms, implementation)
    add_microbatch(terms)
    if chunks(choices) != 1 and has_machines:
        add_chunks(terms, choices)
    parts = [part for system in SYSTEMS for part in system.time(terms, choices)]
    add_step(terms, implementation, parts, links)
    add_spent(terms, implementation, parts)
    add_rates(terms, implementation)
