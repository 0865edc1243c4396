"""Counterexamples that people can read: what need not be large is small."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardmath.generated.definitions import PARAMETERS

_TRIED = (0, 1, 2, 4, 8, 16)
#: Kinds of parameters that stay as they are in a layout of a real model.
_OF_MODEL = ("model", "machine")


def smaller(point: Mapping[str, int], refutes: Callable[[Mapping[str, int]], bool], *, real: bool) -> dict[str, int]:
    """Return the point with small values where it still refutes; with ``real``, the model stays."""
    best = dict(point)
    names = [name for name in point if not (real and name in PARAMETERS and PARAMETERS[name][4] in _OF_MODEL)]
    for name in sorted(names, key=lambda name: -best[name]):
        for value in _TRIED:
            if value >= best[name]:
                break
            if (name not in PARAMETERS or value >= PARAMETERS[name][2]) and refutes({**best, name: value}):
                best[name] = value
                break
    return best
