"""Layouts and numbers in the few letters that a plot has room for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from shardmath.generated.definitions import ABSENT_DEGREES, SHORT

#: Sizes in the order in which people say them.
_SAID = ("tensor_parallel", *ABSENT_DEGREES, "context_parallel", "pipeline_parallel", "virtual_pipeline",
         "expert_parallel", "data_parallel", "micro_batch_size")


def short(layout: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Get the sizes as far as they are not 1, and what is recomputed, ``without`` some; ``DP`` if nothing is left."""
    parts = [f"{SHORT[name]} {layout[name]}" for name in _SAID
             if name not in without and layout.get(name, 1) != 1]
    if "recompute" not in without and layout.get("recompute", "none") != "none":
        parts.append(f"recompute {layout['recompute']}")
    return " ".join(parts) or "DP"


def three_digits(number: float) -> str:
    """Format a non-negative number with three digits, or all before its point; never a power of ten."""
    return f"{number:.{min(2, max(0, 3 - len(str(int(number)))))}f}"
