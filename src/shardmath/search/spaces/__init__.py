"""Spaces of configurations: axes, derived symbols, fixed values, constraints and what to ask of them."""

from __future__ import annotations

from shardmath.search.spaces.candidates import DivisorsOf, Multiples, PowersOfTwo, Range
from shardmath.search.spaces.declared import Axis, Constraint, Space
from shardmath.search.spaces.files import plain, read_space, space_of
from shardmath.search.spaces.parts import Part
from shardmath.search.spaces.questions import Best, Front, Histogram, Question, Rows

__all__ = [
    "Axis", "Best", "Constraint", "DivisorsOf", "Front", "Histogram", "Multiples", "Part", "PowersOfTwo", "Question",
    "Range", "Rows", "Space", "plain", "read_space", "space_of",
]
