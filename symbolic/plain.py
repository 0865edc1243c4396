"""From the terms of an implementation to its plain evaluators, as text: memory and time, in Python and JavaScript.

The formulas themselves are typeset for the page.
"""

from __future__ import annotations

import json

from shardmath.files.rendering import rendered

from .accounts import build
from .accounts.row_sizes import row_sizes
from .documents.evaluator import Form, as_written, evaluator, script
from .documents.row_tables import row_tables
from .documents.typeset import typeset
from .implementations import Implementation
from .parallel.legality import rules_for
from .simplify import computed
from .timing import build_times, is_timed


def derive_memory(implementation: Implementation, *, simplified: bool = False) -> str:
    """Derive the plain evaluator of an implementation's memory and rules.

    Its terms are printed as written, or ``simplified`` for people who read them.
    """
    title = f"Memory of sharded training: {implementation.title}"
    data = evaluator(title, build(implementation), rules_for(implementation), form=_form(simplified))
    return rendered("evaluator.py", data)


def derive_time(implementation: Implementation, *, simplified: bool = False) -> str:
    """Derive the plain evaluator of the time of a step; see ``derive_memory``.

    Seconds are computed in floats, which another form would round otherwise: all that is asked of one implementation
    is computed with one form.
    """
    title = f"Time of sharded training: {implementation.title}"
    return rendered("evaluator.py", evaluator(title, build_times(implementation), (), form=_form(simplified)))


def derive_rows(implementation: Implementation) -> str:
    """Derive the tables of an implementation's single rows, and of the order in which a step allocates them."""
    return rendered("rows.py", row_tables(implementation))


def _form(simplified: bool) -> Form:
    return computed if simplified else as_written


def derive_script(implementation: Implementation, *, with_rows: bool = False) -> str:
    """Return the JavaScript evaluator of an implementation: memory, rules, and time where it is counted.

    It has single rows where layers are dense, or these are asked for.
    """
    title = f"Sharded training: {implementation.title}"
    times = build_times(implementation) if is_timed(implementation) else None
    rows = row_sizes(implementation) if with_rows or implementation.choices["layers"] == "dense" else None
    data = script(implementation.name, title, build(implementation), rules_for(implementation), times, rows)
    return rendered("evaluator.js", data)


def derive_formulas(implementation: Implementation) -> str:
    """Return the formulas of an implementation in MathML, by term, as JSON; see ``typeset``."""
    return json.dumps(typeset(implementation))
