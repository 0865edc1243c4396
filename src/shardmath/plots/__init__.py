"""Answers as pictures: plain enough for a column of a paper, and pages of their own for a screen."""

from __future__ import annotations

from shardmath.plots.picture import Panel, Picture, refuse_unplottable, write_picture

__all__ = ["Panel", "Picture", "refuse_unplottable", "write_picture"]
