"""The accepted risk: the probability of running out of memory below which a layout is said to fit."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from shardmath.errors import InputError
from shardmath.generated.definitions import DEFAULTS, MOST_RISK, process_parts, run_out_probability

#: Parameter that formulas have in place of a risk, and the whole that it is a part of.
PARTS, _WHOLE = "process_parts", 10**6
#: Its name among arguments.
RISK = "risk"
_RULE = f"must be above 0 % and at most {MOST_RISK * 100:.0f} %"


def parts_for(risk: float | str) -> int:
    """Return the share of the memory that a process may take with a risk: ``5%``, ``"0.05"`` or ``0.05``.

    In millionths. Raises InputError for a risk out of range, and for a text that is no number.
    """
    try:
        text = str(risk).strip()
        chance = float(Decimal(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1))
    except (InvalidOperation, ValueError):
        raise InputError(RISK, risk, _RULE, "1%") from None
    if not 0 < chance <= MOST_RISK:
        nearest = f"{MOST_RISK:.0%}" if chance > 0 else "1%"
        if 1 <= chance <= 100 * MOST_RISK and not text.endswith("%"):
            nearest = f"{chance:g}%"  # a percentage without its sign
        raise InputError(RISK, risk, _RULE, nearest)
    return process_parts(chance)


def with_parts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with an accepted risk among them written as the parameter that formulas have.

    Raises InputError for a risk that is not legal, and for one beside another value of the parameter.
    """
    others = {name: value for name, value in values.items() if name != RISK}
    if values.get(RISK) is None:
        return others
    parts = parts_for(values[RISK])
    if others.get(PARTS, parts) != parts:
        raise InputError(PARTS, others[PARTS], "must not be given together with risk")
    return {**others, PARTS: parts}


def risk_of(values: Mapping[str, int]) -> float:
    """Return the accepted risk from the values of parameters: the probability at the limit, to three digits."""
    parts = values.get(PARTS, DEFAULTS[PARTS])
    return float(f"{run_out_probability(parts, parts, _WHOLE):.3g}")
