"""Configurations and implementations side by side, and published formulas beside counted ones."""

from __future__ import annotations

from shardmath.comparing.comparison import Comparison
from shardmath.comparing.run import compare, posed

__all__ = ["Comparison", "compare", "posed"]
