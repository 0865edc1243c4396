"""All terms of one implementation, in the order in which they can be computed."""

from __future__ import annotations

from functools import cache

from ..implementations import Implementation
from ..overheads import add_fullest, add_process
from ..parallel.derived import definitions, given
from ..parallel.rules import local_name
from ..parallel.schedules import SPLIT_BACKWARD
from ..parallel.uncounted import refuse_impossible
from ..parameters import BY_LETTER
from ..terms import TermSet
from .options import refuse_without_rows
from .outside import add_outside
from .peak import add_moments, add_peak, candidates
from .rows import chosen_size, used_dimensions
from .servers import add_servers
from .stage import add_host, add_kept, add_parameters, add_states, add_transients
from .units import add_layers, add_output_gradients, add_units


@cache
def build(implementation: Implementation) -> TermSet:
    """Return all terms of ``implementation``, from derived symbols to the peak over pipeline ranks.

    Sizes of split dimensions on one rank are terms too. They are integers wherever the configuration
    is legal, so the arithmetic of all later terms is exact even in floating point.
    """
    refuse_without_rows(implementation.choices)
    refuse_impossible(implementation.choices)
    terms = TermSet(implementation.name, as_inputs=given(implementation.choices))
    for letter, expression in definitions(implementation.choices, implementation.framework).items():
        parameter = BY_LETTER[letter]
        terms.add(parameter.name, expression, parameter.unit, parameter.meaning)
    for dimension in used_dimensions(implementation):
        size = chosen_size(dimension, implementation.choices)
        if size != dimension.size:
            terms.add(local_name(dimension), size, "elements", f"{dimension.meaning}, of one rank")
    add_units(terms, implementation)
    add_layers(terms, implementation)
    if implementation.choices["schedule"] in SPLIT_BACKWARD:
        add_output_gradients(terms, implementation)
    add_parameters(terms, implementation)
    add_states(terms, implementation)
    add_host(terms, implementation)
    add_kept(terms, implementation)
    add_transients(terms, implementation)
    add_moments(terms, implementation)
    add_process(terms, implementation)
    add_peak(terms, implementation)
    add_fullest(terms, implementation, candidates(implementation.choices))
    add_outside(terms, implementation)
    add_servers(terms, implementation)
    return terms
