"""One rule for ties: which keys are equal, and which configurations a front keeps.

A search and the check of its certificate compare keys by this rule, so both mean the same answers. What is closed by it
each of them decides for itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Keys that are not whole numbers are computed in floats: within this share of themselves they are equal.
SLACK = 1e-9


def slack(keys: NDArray[np.float64], whole: Any) -> NDArray[np.float64]:
    """Return by how much equal keys may differ: 0 for ``whole`` numbers, which floats have exactly."""
    return np.where(whole, 0.0, SLACK * np.abs(keys))


def unbeaten(keys: NDArray[Any], numbers: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the rows of ``keys`` that no other row beats, in the order of their keys.

    A row is beaten by one that is smaller in some key and larger in none. Equal rows count once: the first one, or the
    one with the smallest of ``numbers``.
    """
    ties = () if numbers is None else (numbers,)
    left, kept = np.lexsort((*ties, *keys.T[::-1])), list[int]()
    columns = keys[left].T.copy()
    first = np.ones(len(left), np.bool_)
    first[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    left, columns = left[first], columns[:, first]
    while len(left):  # sorted by all keys: nothing behind the first row beats it
        kept.append(int(left[0]))
        still = ~(columns >= columns[:, :1]).all(axis=0)
        left, columns = left[still], columns[:, still]
    return np.asarray(kept, np.int64)
