"""The probability that a process runs out of memory, from how known runs went.

A run needs its predicted process memory times a factor that nobody predicted: tensors that a framework keeps beside
the counted ones, fragmentation, buffers of communication. The factor is taken as Weibull-distributed. Log-logistic and
log-normal ones fit as well (log-likelihoods within 0.6 of each other); this one says *fits* to more runs, none of which
failed. Both numbers are fitted, to 2277 runs: docs/validation.md has the rows and how often it held.
"""

from __future__ import annotations

from sympy import Expr, Integer, Rational, Symbol, exp, floor, log

MARGIN = Symbol("margin", positive=True)
PROBABILITY = Symbol("probability", positive=True)

#: Share of a GPU's memory that a process can get, the driver's own part taken off. PyTorch's errors name 39.39 of
#: 40 GiB on A100, 79.11 of 80 on H100 (pytorch/pytorch and vllm-project/vllm#27508): 0.985 to 0.99.
OFFERED = Rational(985, 1000)
#: Share of that which a process may take before runs mostly fail: with it 1/e of them do. Fitted on 30 November 2026.
SCALE = Rational(81, 100)
#: Steepness: the larger, the less the unpredicted factor varies. Fitted with it.
STEEPNESS = 5
#: Below this probability a layout fits, unless another risk is accepted.
FITS_BELOW = Rational(1, 100)
#: The largest risk that can be accepted: above it most runs fail.
MOST_RISK = Rational(1, 2)
#: Shares of the memory are counted in whole parts of so many.
PARTS = 10**6


def margin(memory: Expr, process: Expr, scale: Rational = SCALE) -> Expr:
    """Return the process memory with which 1/e of the runs fail, over the predicted one."""
    return scale * OFFERED * memory / process


def run_out_probability(margin: Expr, steepness: int = STEEPNESS) -> Expr:
    """Return the probability that a process with a margin runs out, unless that is certain."""
    return exp(-margin**steepness)


def process_limit(probability: Expr) -> Expr:
    """Return the process memory that has a probability, as a share of the GPU's memory."""
    return SCALE * OFFERED / (-log(probability)) ** Rational(1, STEEPNESS)


#: The share with which a layout just fits, in whole parts: the usual value of a parameter.
USUAL_PARTS = int(floor(Integer(PARTS) * process_limit(FITS_BELOW)))
