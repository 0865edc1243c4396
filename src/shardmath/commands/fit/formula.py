"""The inverted formula of an answer: the polynomial that holds there, solved for the symbol, in several forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from shardmath.answers import Answer, Exact
from shardmath.compiler.evaluators import Evaluator
from shardmath.compiler.inverses.binding import Binding
from shardmath.compiler.inverses.laurent import NoClosedFormError, combined, constant, signs, value
from shardmath.generated.definitions import PARAMETERS

_SWITCHES = frozenset(name for name, row in PARAMETERS.items() if row[2:4] == (0, 1))


@dataclass(frozen=True)
class Coefficient(Answer):
    """One coefficient of the peak, a polynomial of the symbol."""

    power: int
    """Exponent of the symbol."""
    text: str
    """The coefficient in letters."""
    latex: str
    """The same as LaTeX."""
    bytes: Exact
    """Its value in bytes."""


@dataclass(frozen=True)
class Solution(Answer):
    """Value of the symbol at the limit, as a formula."""

    text: str
    """The formula in one line of text."""
    latex: str
    """The same as LaTeX."""
    unicode: str
    """The same as Unicode."""
    coefficients: Mapping[str, Coefficient]
    """Coefficients of the formula, by name."""
    uses: Mapping[str, str]
    """Definitions of terms in the coefficients."""
    uses_latex: Mapping[str, str]
    """The same as LaTeX."""
    closed: int | None
    """Value of the formula, without roundings, paddings and rules."""
    roundings: Exact
    """Bytes that these add at the answer."""
    limit: Exact
    """Bytes that the peak must not exceed there."""


def solution(
    evaluator: Evaluator, source: str, name: str, values: Mapping[str, int], multiples: Mapping[str, Fraction],
    limit: Fraction, share: Fraction | None, peak: int, *, largest: bool,
) -> Solution | None:
    """Get the formula for ``name`` at the configuration ``values``; None where the peak is no polynomial of it there.

    ``source`` is that of the evaluator, ``limit`` in bytes, ``share`` what it is of the memory, None for that of the
    verdict; ``peak`` is that of the configuration. With the memory of the GPU for ``name``, the formula says what
    is needed.
    """
    of_memory = name == "gpu_memory"
    try:
        binding = Binding(source, "peak", values, None if of_memory else name, multiples, _SWITCHES)
        off = Fraction(peak - value(binding.numbers, values.get(name, 1)))
        return _written(binding, evaluator, name, limit, share, off, largest=largest)
    except NoClosedFormError:
        return None


def _written(
    binding: Binding, evaluator: Evaluator, name: str, limit: Fraction, share: Fraction | None, roundings: Fraction, *,
    largest: bool,
) -> Solution:
    from sympy import Integer, Rational

    from shardmath.symbolic.documents.inverted import NAMES, inverted
    from shardmath.symbolic.printers.latex import LatexPrinter
    from shardmath.symbolic.printers.text import LinePrinter, UnicodePrinter
    from shardmath.symbolic.terms import Term, term_symbol

    terms = [Term(term, term_symbol(term), Integer(0), *row) for term, row in evaluator.terms.TERMS.items()]
    part = None if share is None else Rational(share.numerator, share.denominator)
    result = inverted(name, binding.coefficients, binding.terms, part, largest=largest)
    line, latex = LinePrinter(), LatexPrinter(terms)
    counts = {
        NAMES[power]: Coefficient(power, line.doprint(letters), latex.doprint(letters), binding.numbers[power])
        for power, letters in zip(sorted(binding.coefficients), result.coefficients.values(), strict=True)
    }
    return Solution(
        f"{line.doprint(result.symbol)} = {line.doprint(result.answer)}",
        f"{latex.doprint(result.symbol)} = {latex.doprint(result.answer)}",
        f"{UnicodePrinter().doprint(result.symbol)} =\n{UnicodePrinter().doprint(result.answer)}",
        counts, {line.doprint(symbol): line.doprint(made) for symbol, made in result.uses.items()},
        {latex.doprint(symbol): latex.doprint(made) for symbol, made in result.uses.items()},
        _closed(binding.numbers, limit, largest=largest), roundings, limit,
    )


def _closed(numbers: Mapping[int, Fraction], limit: Fraction, *, largest: bool) -> int | None:
    """Return the last integer with which the polynomial is at most the limit."""
    if not numbers.keys() - {0}:
        return None
    fitting = [(first, last) for first, last, sign in signs(combined(numbers, constant(-limit)), 1, 1 << 62)
               if sign <= 0]
    return None if not fitting else fitting[-1][1] if largest else fitting[0][0]
