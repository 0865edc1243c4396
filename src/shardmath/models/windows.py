"""Attention windows in a ``config.json``: how wide they are, and which layers have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["FULL", "SLIDING", "step_of", "windows_of"]

FULL = "full_attention"
SLIDING = "sliding_attention"


def windows_of(window: int | None, layer_types: Sequence[str] | None, step: int = 0) -> dict[str, Any]:
    """Return ``attention_window`` and ``full_attention_step`` of ``Model``.

    ``layer_types`` names the kind of every layer and goes before ``step``, N where every N-th layer has no window
    (0: all have one). Without windows, and of a list that no step describes, both are 0; a remark says the latter.
    """
    if layer_types is not None:
        regular = step_of(layer_types)
        step = 1 if regular is None else regular
    if not window or step == 1:
        return {"attention_window": 0, "full_attention_step": 0}
    return {"attention_window": window, "full_attention_step": step}


def step_of(layer_types: Sequence[str]) -> int | None:
    """Return N where every N-th layer attends to whole sequences, 0 if all have windows; None without such a step."""
    whole = [number for number, kind in enumerate(layer_types, 1) if kind == FULL]
    if any(kind not in (FULL, SLIDING) for kind in layer_types):
        return None
    if not whole:
        return 0
    step = whole[0]
    return step if whole == list(range(step, len(layer_types) + 1, step)) else None
