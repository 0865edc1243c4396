"""A formula in the terminal: rows, derivation, meanings of its symbols, and its named parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby

from shardmath.catalogue.code import UNCOUNTED, UNKNOWN
from shardmath.commands.formula.legend import letters_of
from shardmath.commands.formula.run import Formula, Listed, Row, Step, forms_of
from shardmath.reports.folding import Formula as Folded
from shardmath.reports.tables import console, table


def show(formula: Formula) -> None:
    """Print the ledger rows of a term, every step of its derivation, and the definitions it uses."""
    out = console()
    source = ", ".join([formula.implementation, *(f"{axis}={option}" for axis, option in formula.kernels.items())])
    out.print(f"{formula.name} ({source}), {formula.unit}: {formula.meaning}", markup=False)
    if formula.assumptions:
        out.print(f"where {', '.join(formula.assumptions)}", markup=False)
    if formula.rows:
        rows = [(row.name, row.size, row.lifetime, row.source, row.meaning) for row in formula.rows]
        out.print(table(("tensor", "size on one rank", "lives", "source", "meaning"), rows, spare=("lives", "source")))
    for step in formula.steps:
        operations = "1 operation" if step.operations == 1 else f"{step.operations} operations"
        out.print(f"{step.rule} ({operations})", markup=False)
        out.print(Folded(f"    {step.form}"))
    for name, definition in formula.uses.items():
        out.print(Folded(f"where {name} = {definition}"))
    if formula.letters:
        out.print(Folded(f"letters: {', '.join(f'{item.letter}={item.name}' for item in formula.letters)}"))
    if formula.publication is not None:
        paper = formula.publication
        year = "" if str(paper.year) in paper.where else f", {paper.year}"
        out.print(f"source: {paper.authors.rstrip('.')}. {paper.title}. {paper.where}{year}.", markup=False)
        out.print(f"    {paper.url}", markup=False, soft_wrap=True)
    if formula.numbers:
        numbers = [
            (", ".join(f"{letter} = {_digits(value)}" for letter, value in number.values.items()), number.printed,
             _digits(number.formula), "-" if number.counted is None else _digits(number.counted), number.unit,
             f"{number.where}; {number.remark}" if number.remark else number.where)
            for number in formula.numbers
        ]
        out.print(table(("at", "source", "formula", "ledger", "unit", "where"), numbers))
    for other in formula.counterparts:
        out.print(Folded(f"{other.meaning} in {other.implementation}: {other.counted}"))
        if other.difference is not None:
            out.print(Folded(f"    published - counted = {other.difference}"))
        out.print(Folded(f"    {other.remark}"))
        if other.assumed:
            assumed = ", ".join(f"{letter} = {value}" for letter, value in other.assumed.items())
            out.print(f"    assuming {assumed}", markup=False, soft_wrap=True)
    _show_lines(formula)
    _show_oracles(formula)


def _show_lines(formula: Formula) -> None:
    """Print the lines of the framework that make the rows, and the rows of which no line is recorded."""
    out = console()
    for line, rows in groupby(sorted(formula.rows, key=_place), key=lambda row: row.code):
        names = ", ".join(row.name for row in rows)
        if line is None:
            out.print(f"{UNKNOWN}: {names}", markup=False)
        else:
            out.print(f"{line.package} {line.release}, {line.name}: {names}", markup=False)
            out.print(f"    {line.url}", markup=False, soft_wrap=True)


def _show_oracles(formula: Formula) -> None:
    """Print the tests that count the rows, and the rows that none counts."""
    out = console()
    for oracle, rows in groupby(sorted(formula.rows, key=lambda row: row.oracle), key=lambda row: row.oracle):
        names = ", ".join(f"{row.name} as {row.shares}" if row.shares else row.name for row in rows)
        out.print(f"{f'counted by {oracle}' if oracle else UNCOUNTED}: {names}", markup=False)


def _place(row: Row) -> tuple[bool, str, int]:
    """Return what sorts rows by package, file and line; those without a line come last."""
    return (True, "", 0) if row.code is None else (False, f"{row.code.package}/{row.code.file}", row.code.line)


def _digits(number: int | Fraction) -> str:
    """Write a number with six digits, or as a power of ten where it has more than that before the point."""
    return f"{float(number):.6g}".replace("e+", "e")


def show_terms(terms: Sequence[Listed]) -> None:
    """Print the names of terms in groups, each with what it is."""
    out = console()
    for group, members in groupby(terms, key=lambda term: term.group):
        out.print(table(("term", "unit", "meaning"), [(term.name, term.unit, term.meaning) for term in members],
                        title=group, spare=("unit",)))


def in_parts(formula: Formula) -> Formula:
    """Return a formula whose last form is over named parts, with all parts in computing order in ``uses``."""
    from shardmath.symbolic.algebra.parts import parts_of
    from shardmath.symbolic.printers.text import LinePrinter
    from shardmath.symbolic.terms import operations

    formulas, line = formula._formulas, LinePrinter()
    *parts, (_, last) = parts_of(formulas, formulas.terms[formula.name]).items()
    total = sum(operations(value) for _, value in parts) + operations(last)
    step = Step(f"of {len(parts)} named parts, {total} operations in all", line.doprint(last), operations(last))
    uses = {line.doprint(part): line.doprint(value) for part, value in parts}
    return replace(formula, steps=(*formula.steps, step), forms=forms_of(last, formulas.terms), uses=uses,
                   letters=letters_of([step.form, *uses.values()]))
