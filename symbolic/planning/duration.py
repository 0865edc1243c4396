"""Days of a training, with failures, checkpoints and restarts; its money and energy; and the gains of a larger job.

Failures are independent and equally likely at any time; each GPU has its share. Training saves a checkpoint every
interval, waits for it for a pause, and goes on from the last one after a failure. The interval is that of Young
(1974); the time that failures add is Daly's (2006) complete model, in which further failures may strike during
checkpoints and restarts, so that it holds for jobs of any size. GPUs that wait for a restart are paid for, and draw
what the others do: GPU-hours, energy and CO2 are counted as Touvron et al. (2023) do, gains as Fernandez et al. (2024).
"""

from __future__ import annotations

from sympy import Integer, exp, sqrt

from ..terms import TermSet
from .letters import quantities

tokens, gpus, rate, mfu, limit, err = quantities("tokens gpus rate mfu limit err")
events, exposure, pause, restart = quantities("events exposure pause restart")
watts, price, intensity = quantities("watts price intensity")
moregpus, morerate, morewatts = quantities("moregpus morerate morewatts")
DAY, HOUR, _KILO = Integer(86400), Integer(3600), 1000


def add(terms: TermSet) -> None:
    """Append the formulas of time, and of amounts over that time."""
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
    hours = terms.add("plan.gpu_hours", gpus * seconds / HOUR, "GPU-hours",
                      "time of all GPUs, with failures")
    terms.add("plan.cost", hours * price, "currency", "price of the GPU-hours")
    energy = terms.add("plan.energy", hours * watts / _KILO, "kWh", "energy of the GPUs with their building")
    terms.add("plan.carbon", energy * intensity / _KILO, "kg", "CO2-equivalent of that energy")


def add_gains(terms: TermSet) -> None:
    """Append the rates of added GPUs and watts, and their ratios to the rates of the smaller job."""
    gain = terms.add("plan.per_added_gpu", (morerate - rate) / (moregpus - gpus), "tokens/s",
                     "tokens per second for each added GPU")
    terms.add("plan.kept_per_gpu", gain / (rate / gpus), "share",
              "the same over the tokens per second of a GPU of the smaller job")
    terms.add("plan.per_added_watt", (morerate - rate) / (moregpus * morewatts - gpus * watts), "tokens/J",
              "tokens per second for each added watt")
