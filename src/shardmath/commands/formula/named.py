"""A formula as named parts, printed."""

from __future__ import annotations

from dataclasses import replace

from shardmath.commands.formula.run import Formula, Step, forms_of


def in_parts(formula: Formula) -> Formula:
    """Return a formula whose last form is over named parts, with all parts in computing order in ``uses``."""
    from shardmath.symbolic.algebra.parts import parts_of
    from shardmath.symbolic.printers.text import LinePrinter
    from shardmath.symbolic.terms import operations

    formulas, line = formula._formulas, LinePrinter()
    *parts, (_, last) = parts_of(formulas, formulas.terms[formula.name]).items()
    total = sum(operations(value) for _, value in parts) + operations(last)
    step = Step(f"of {len(parts)} named parts, {total} operations in all", line.doprint(last), operations(last))
    return replace(formula, steps=(*formula.steps, step), forms=forms_of(last, formulas.terms),
                   uses={line.doprint(part): line.doprint(value) for part, value in parts})
