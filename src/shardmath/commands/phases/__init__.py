"""Train in phases with a layout each: memory and time of every phase, and what the changes between them cost."""

from __future__ import annotations

from shardmath.commands.phases.answers import KeptLayout, LayoutChange, Phase, Phases
from shardmath.commands.phases.run import phases

__all__ = ["KeptLayout", "LayoutChange", "Phase", "Phases", "phases"]
