"""The formulas behind a sensitivity: what every line of the peak's account contributes to it, by SymPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from shardmath.account.accounting import every_line
from shardmath.answers import Answer, Ratio
from shardmath.compiler.evaluators import in_ledger
from shardmath.configuration.job import Job
from shardmath.errors import InputError, nearest_names
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.parameters import long_name


@dataclass(frozen=True)
class SlopeFormula(Answer):
    """Contribution of one line of an account to a sensitivity."""

    term: str
    """Name of the term."""
    component: str
    """Component of the model."""
    role: str
    """Why the rank keeps it."""
    formula: str
    """Derivative in letters."""
    latex: str
    """The same as LaTeX."""
    slope: Ratio
    """Bytes per unit, exact."""


@dataclass(frozen=True)
class SlopeFormulas(Answer):
    """The formulas behind a sensitivity."""

    name: str
    """Symbol."""
    letter: str
    """Its letter."""
    slope: Ratio
    """Bytes per unit of the whole account, exact."""
    lines: tuple[SlopeFormula, ...]
    """The largest contribution first."""
    uses: Mapping[str, str]
    """Definitions of the letters."""


def slope_formulas(job: Job, rank: int, name: str) -> SlopeFormulas:
    """Derive each line of the account of ``rank`` by the symbol ``name``, also lines that are empty here.

    ``name`` is the long name or the letter. The rank stays what it is, also where the symbol is the number of stages.
    Switches count as if they could take any value. Raises InputError for a name that is no symbol of the job.
    """
    known = [item for item in job.evaluator.terms.INPUTS if item not in (*job.evaluator.fixed, "pipeline_rank")]
    asked, name = name, long_name(name)
    if name not in known:
        raise InputError("formula", asked, "must be a symbol of the configuration", nearest_names(name, known))
    from shardmath.symbolic.accounts import build
    from shardmath.symbolic.printers.latex import LatexPrinter
    from shardmath.symbolic.printers.text import LinePrinter
    from shardmath.symbolic.sensitivities import Slopes
    from shardmath.symbolic.simplify import derivation, simplify

    terms = build(in_ledger(job.evaluator.implementation, job.evaluator.choices))
    values = job.on_rank(rank)
    letters = {PARAMETERS[item][0]: values[item] for item in job.evaluator.terms.INPUTS}
    slopes = Slopes(terms, PARAMETERS[name][0], letters)
    printer, latex = LinePrinter(), LatexPrinter(terms.terms.values())
    lines, letters_used = [], set()
    for line in every_line(job.evaluator, values):
        expression = slopes.of(line.term)
        value = slopes.value(expression)
        if value:
            shown = simplify(expression)[-1].expression
            letters_used |= shown.free_symbols & terms.by_symbol.keys()
            lines.append(SlopeFormula(line.term, line.component, line.role, printer.doprint(shown),
                                      latex.doprint(shown), Fraction(int(value.p), int(value.q))))
    uses = {
        printer.doprint(letter): printer.doprint(derivation(terms, terms.by_symbol[letter].name, {})[-1].expression)
        for letter in sorted(letters_used, key=str)
    }
    lines.sort(key=lambda item: -abs(item.slope))
    slope = sum((line.slope for line in lines), Fraction(0))
    return SlopeFormulas(name, PARAMETERS[name][0], slope, tuple(lines), uses)
