"""Options of kernel choices one at a time, with the other choices that they go with."""

from __future__ import annotations

from shardmath.symbolic.axis import Axis
from shardmath.symbolic.implementations import Implementation

#: What options go with that are nothing by themselves.
_TOGETHER = {"fp8_weights": {"fp8": "delayed", "peak": "saved"}}


def with_option(implementation: Implementation, axis: Axis, option: str) -> Implementation:
    """Change one choice of an implementation, and what goes with it."""
    needed = {**axis.needs.get(option, {}), **_TOGETHER.get(axis.name, {})}
    return implementation.with_choices(**{**needed, axis.name: option})
