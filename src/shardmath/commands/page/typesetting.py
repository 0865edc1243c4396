"""The formulas of an evaluator as MathML, and its JavaScript."""

from __future__ import annotations

from typing import Any

from shardmath.compiler.evaluators import Evaluator
from shardmath.files.cached import cached_text, sources_digest
from shardmath.generated.definitions import PEAK_RANKS

#: Owners of terms that repeat those of any rank.
_COPIES = (*PEAK_RANKS, "model")


def formulas_of(evaluator: Evaluator) -> dict[str, dict[str, Any]]:
    """Symbol, form and used terms of every term of any one rank, by name; the form is cut before its summands."""
    from shardmath.symbolic.accounts import build
    from shardmath.symbolic.implementations import IMPLEMENTATIONS
    from shardmath.symbolic.parallel.legality import fixed_values
    from shardmath.symbolic.printers.mathml import MathmlPrinter
    from shardmath.symbolic.simplify import derivation

    chosen = IMPLEMENTATIONS[evaluator.implementation].with_choices(**evaluator.choices)
    terms, fixed = build(chosen), fixed_values(chosen)
    printer = MathmlPrinter(terms.terms.values())
    typeset = {}
    for name, term in terms.terms.items():
        if term.owner in _COPIES:
            continue
        form = derivation(terms, name, fixed)[-1].expression
        uses = [terms.by_symbol[symbol] for symbol in form.free_symbols & terms.by_symbol.keys()]
        if any(other.owner in _COPIES for other in uses):  # the peak over all ranks
            continue
        names = sorted(other.name for other in uses)
        typeset[name] = {"symbol": printer.doprint(term.symbol), "form": printer.pieces(form), "uses": names}
    return typeset


def script_of(evaluator: Evaluator) -> str:
    """The JavaScript of an evaluator, derived once and kept for the next time."""

    def derived() -> str:
        from shardmath.symbolic.implementations import IMPLEMENTATIONS
        from shardmath.symbolic.plain import derive_script

        return derive_script(IMPLEMENTATIONS[evaluator.implementation].with_choices(**evaluator.choices))

    return cached_text(f"scripts/{sources_digest()[:16]}", f"{evaluator.name}.js", derived)
