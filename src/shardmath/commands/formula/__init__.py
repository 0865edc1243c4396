"""Show one term: its rows, its derivation and its form in other languages."""

from __future__ import annotations

from shardmath.commands.formula.run import Formula, formula

__all__ = ["Formula", "formula"]
