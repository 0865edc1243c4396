"""Configurations and implementations side by side, and published formulas beside counted ones."""

from __future__ import annotations

from shardmath.commands.compare.comparison import Comparison
from shardmath.commands.compare.run import compare, posed

__all__ = ["Comparison", "compare", "posed"]
