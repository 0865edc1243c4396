"""Days of a training: tokens over their rate, and what failures, checkpoints and restarts add.

Failures are independent and equally likely at any time; each GPU has its share. Training saves a checkpoint every
interval, waits for it for a pause, and goes on from the last one after a failure. The interval is that of Young
(1974); the time that failures add is Daly's (2006) complete model, in which further failures may strike during
checkpoints and restarts, so that it holds for jobs of any size.
"""

from __future__ import annotations

from sympy import Integer, exp, sqrt

from ..terms import TermSet
from .letters import quantities

tokens, gpus, rate, mfu, limit, err = quantities("tokens gpus rate mfu limit err")
events, exposure, pause, restart = quantities("events exposure pause restart")
DAY, HOUR = Integer(86400), Integer(3600)


def add(terms: TermSet) -> None:
    """Append the formulas of time."""
    terms.add("plan.least_gpus", tokens * mfu / (rate * limit), "GPUs",
              "GPUs that would meet the deadline at their peak; rate and utilisation are those of one GPU")
    terms.add("plan.fast_rate", rate * (1000 + err) / 1000, "tokens/s", "the highest rate that is likely")
    terms.add("plan.slow_rate", rate * (1000 - err) / 1000, "tokens/s", "the lowest rate that is likely")
    busy = terms.add("plan.training_seconds", tokens / rate, "s", "training without an interruption")
    apart = terms.add("plan.between_failures", DAY * exposure / (events * gpus), "s",
                      "mean time between two interruptions of the job")
    interval = terms.add("plan.interval", sqrt(2 * pause * apart), "s",
                         "training from one checkpoint to the next, of Young (1974)")
    share = terms.add(
        "plan.goodput", interval / (apart * exp(restart / apart) * (exp((interval + pause) / apart) - 1)), "share",
        "share of the time in which training advances, of Daly (2006)")
    seconds = terms.add("plan.seconds", busy / share, "s", "the whole training, with failures")
    terms.add("plan.days", seconds / DAY, "days", "the same in days")
    terms.add("plan.interruptions", seconds / apart, "interruptions", "interruptions to expect")
