"""The probability that a layout runs out of memory, from the memory of its process and from how known runs went.

A run needs its predicted process memory times a factor that nobody predicted: tensors that a framework keeps beside
the counted ones, fragmentation, buffers of communication. The factor is taken as Weibull-distributed. Log-logistic and
log-normal ones fit as well (log-likelihoods within 0.6 of each other); this one says *fits* to more runs, none of which
failed. Both numbers are fitted, to 2269 runs: docs/validation.md has the rows and how often it held.
"""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Expr, Gt, Integer, Lt, Rational, Symbol, exp, log
from sympy.logic.boolalg import Boolean, true

from .parameters import symbol

M = symbol("M")
ALLOCATED = Symbol("allocated", nonnegative=True)
PROCESS = Symbol("process", positive=True)
MARGIN = Symbol("margin", positive=True)
PROBABILITY = Symbol("probability", nonnegative=True)

#: Share of a GPU's memory that a process can get, the driver's own part taken off. PyTorch's errors name 39.39 of
#: 40 GiB on A100, 79.11 of 80 on H100 (pytorch/pytorch and vllm-project/vllm#27508): 0.985 to 0.99.
OFFERED = Rational(985, 1000)
#: Share of that which a process may take before runs mostly fail: with it 1/e of them do. Fitted on 24 November 2026.
SCALE = Rational(80, 100)
#: Steepness: the larger, the less the unpredicted factor varies. Fitted with it.
STEEPNESS = 5
#: Below this probability a layout is said to fit.
FITS_BELOW = Rational(1, 100)


#: All of the memory is too little for what is allocated alone: certain.
CERTAIN = Gt(ALLOCATED, M)


def margin(scale: Rational = SCALE) -> Expr:
    """Return the process memory with which 1/e of the runs fail, over the predicted one."""
    return scale * OFFERED * M / PROCESS


def run_out_probability(margin: Expr, steepness: int = STEEPNESS) -> Expr:
    """Return the probability that a process with a margin runs out, unless that is certain."""
    return exp(-margin**steepness)


def process_limit(probability: Rational) -> Expr:
    """Return the process memory that has a probability, as a share of the GPU's memory."""
    return SCALE * OFFERED / (-log(probability)) ** Rational(1, STEEPNESS)


@dataclass(frozen=True)
class Forecast:
    """One answer: its name, the condition on the probability, and what it means."""

    name: str
    condition: Boolean
    meaning: str


#: The first forecast whose condition holds is the answer.
FORECASTS: tuple[Forecast, ...] = (
    Forecast("fits", Lt(PROBABILITY, FITS_BELOW), "runs out of memory with a probability below 1 %"),
    Forecast("uncertain", Lt(PROBABILITY, Integer(1)), "may run out of memory"),
    Forecast("out of memory", true, "more is allocated than the memory"),
)
