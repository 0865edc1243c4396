"""Slices of a sequence in a pipeline: how much a slice attends to, and the time of all passes (Li et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def attended(start: Any, length: Any, whole: Any) -> Any:
    """Return tokens that a slice attends to on average, over those of a slice in the middle of ``whole`` tokens.

    Before the slice are ``start`` tokens, and a token of it attends to half of the ``length`` on average.
    """
    return (2 * start + length) / whole


def passes_seconds(slices: Sequence[float], ranks: int, sequences: int) -> float:
    """Return seconds of all passes of a pipeline of equal stages, whose slices take so many seconds there and back.

    Each stage works on all slices of all sequences; the longest one is waited for while the pipeline fills and drains.
    Where forward and backward passes take turns, it takes longer unless all slices take equally long.
    """
    return sequences * sum(slices) + (ranks - 1) * max(slices)
