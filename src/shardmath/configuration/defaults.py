"""Defaults that depend on the model: one place for accounts, tables, sweeps, spaces and calibrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmath.configuration.fields import SEQ_LENGTH
from shardmath.generated.definitions import ARCHITECTURE, IMPLEMENTATIONS

if TYPE_CHECKING:
    from shardmath.models.model import Model


def default_seq_length(model: Model | None) -> int:
    """Return tokens of a sequence of ``model``: no more than its table of learned positions has rows."""
    rows = 0 if model is None else model.learned_positions
    return min(SEQ_LENGTH, rows) if rows else SEQ_LENGTH


def default_implementation(model: Model | None) -> str:
    """Return the first implementation that has the architecture of ``model``; the first of all where none has."""
    first, *others = IMPLEMENTATIONS
    return next((name for name in (first, *others) if model is None or _has(name, model)), first)


def _has(implementation: str, model: Model) -> bool:
    allowed = IMPLEMENTATIONS[implementation]["allowed"]
    return all(model.architecture[axis] in allowed.get(axis, (model.architecture[axis],)) for axis in ARCHITECTURE)
