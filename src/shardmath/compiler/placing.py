"""Memory for columns and outputs that one loop goes through together.

All large arrays of NumPy begin at the same place of a page, 16 bytes behind the beginning of a line of the cache. A
loop over many of them then reads two lines for every vector, and they all compete for the same few places of the cache.
Here each begins with a line, and each in another part of a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: Bytes of a page, and how far apart in it arrays begin: some lines, so that sixteen arrays fit.
_PAGE, _APART = 4096, 256
#: Outputs begin behind so many columns.
_COLUMNS = 12


def placed(columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return copies of columns of one length."""
    copies = {}
    for number, (name, values) in enumerate(columns.items()):
        copies[name] = _room((len(values),), values.dtype, number)
        copies[name][:] = values
    return copies


def outputs(rows: int, count: int, kind: DTypeLike = np.float64) -> NDArray[Any]:
    """Room for ``rows`` numbers of each of ``count`` layouts: rows have some columns more, without meaning."""
    size = np.dtype(kind).itemsize
    width = -(-count * size // _PAGE) * _PAGE + _APART
    return _room((rows, width // size), kind, _COLUMNS)


def _room(shape: tuple[int, ...], kind: DTypeLike, number: int) -> NDArray[Any]:
    """Return an array that begins at one of the places in a page."""
    whole = np.empty(prod(shape) * np.dtype(kind).itemsize + _PAGE, np.uint8)
    return np.ndarray(shape, kind, buffer=whole, offset=(number * _APART - whole.ctypes.data) % _PAGE)
