"""Verdicts on bytes by name: from the probability of running out, and by the published rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from shardmath.generated.definitions import LIMITS, RULE_80, VERDICTS, rule_80, run_out_probability, verdict

#: Names of the verdicts, the best one first.
FITS, UNCERTAIN, OUT = NAMES = tuple(name for name, _ in VERDICTS)
#: Those of the 80 % rule.
RULE_NAMES = tuple(name for name, _ in RULE_80)
#: Terms that a verdict compares the peak with, by their names in its function.
LIMIT_TERMS = {name.replace(".", "_"): name for name in LIMITS}


def verdict_of(estimate: int | Fraction, numbers: Mapping[str, Any], limits: Sequence[str] = LIMITS) -> str:
    """Return the name of the verdict on a peak, or with ``RANK_LIMITS`` on bytes of a rank; ``numbers`` are terms."""
    return NAMES[verdict(estimate, *(numbers[name] for name in limits))]


def rule_of(estimate: int | Fraction, gpu_memory: int) -> str:
    """Return the name of the 80 % rule's verdict on an estimate; both in bytes."""
    return RULE_NAMES[rule_80(estimate, gpu_memory)]


def probability_of(numbers: Mapping[str, Any], values: Mapping[str, int]) -> float:
    """Return the probability that the process on the fullest rank runs out, from terms and parameters by name."""
    allocated = int(numbers["peak"]) + values["unexplained_bytes"]
    return run_out_probability(allocated, int(numbers["process.peak"]), values["gpu_memory"])


def fullness_of(numbers: Mapping[str, Any], gpu_memory: int) -> Fraction:
    """Return the memory of a rank's process over that of its GPU: the larger, the likelier it runs out."""
    return Fraction(int(numbers["process.total"]), gpu_memory)
