"""Try every layout of a model on a cluster, and rank those that fit."""

from __future__ import annotations

from shardmath.commands.sweep.answer import SweepResult
from shardmath.commands.sweep.run import layouts, sweep

__all__ = ["SweepResult", "layouts", "sweep"]
