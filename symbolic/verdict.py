"""Verdicts: the answer from the probability of running out, and the published rule of thumb beside it.

The answer compares the peak with two limits of bytes, terms of ``symbolic/overheads.py``: with the most that leaves
the process a probability below the accepted one, and with all that can be allocated. The rule says that an estimate of
at most 80 % of the GPU's memory leaves room for the rest. It was found with the published estimator, which is higher
than the counted ledger; what it says of the authors' own runs with either of them is in ``docs/fujii2024.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Expr, Gt, Integer, Le, Rational, Symbol
from sympy.logic.boolalg import Boolean, true

from .functions import CeilDiv
from .parameters import symbols
from .run_out import PARTS
from .terms import term_symbol

M, room = symbols("M room")
ESTIMATE = Symbol("estimate", nonnegative=True)
ALLOCATED = Symbol("allocated", nonnegative=True)
PROCESS = Symbol("process", positive=True)

#: Terms with the limits of the peak in bytes: so that all ranks fit, and so that it can be allocated.
MOST, FITS, HOLDS = "process.most", "process.fits", "process.holds"
LIMITS = (MOST, HOLDS)
#: The same for the total of one rank.
RANK_LIMITS = (FITS, HOLDS)


@dataclass(frozen=True)
class Verdict:
    """One answer: its name, the condition on the estimate (bytes), and what it means."""

    name: str
    condition: Boolean
    meaning: str


#: The first verdict whose condition holds is the answer.
VERDICTS: tuple[Verdict, ...] = (
    Verdict("fits", Le(ESTIMATE, term_symbol(MOST)), "runs out of memory with a probability below 1 % (or --risk)"),
    Verdict("uncertain", Le(ESTIMATE, term_symbol(HOLDS)), "may run out of memory"),
    Verdict("out of memory", true, "more is allocated than the memory"),
)
#: The same answers by the published rule.
RULE_80: tuple[Verdict, ...] = (
    Verdict("fits", Le(5 * ESTIMATE, 4 * M), "at most 80 % of the memory"),
    Verdict("uncertain", Le(ESTIMATE, M), "between 80 % and 100 % of the memory"),
    Verdict("out of memory", true, "more than the memory"),
)
SOURCE = "fujii2024"

#: All of the memory is too little for what is allocated alone: certain.
CERTAIN = Gt(ALLOCATED, M)


def rule_share() -> Rational:
    """Return the share of the memory up to which the published rule says that an estimate fits."""
    condition = RULE_80[0].condition
    return condition.rhs / M / condition.lhs.as_coeff_Mul()[0]


def needed_memory(process: Expr) -> Expr:
    """Return the least memory of a GPU on which a process fits."""
    return Integer(PARTS) * CeilDiv(process, room)
