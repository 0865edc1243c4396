"""Step time: work and traffic of the components, and what a machine needs for them."""

from __future__ import annotations

from .build import build_all, build_times, is_timed

__all__ = ["build_all", "build_times", "is_timed"]
