"""Try every configuration of a declared space."""

from __future__ import annotations

from shardmath.commands.explore.answer import Explored
from shardmath.commands.explore.run import explore

__all__ = ["Explored", "explore"]
