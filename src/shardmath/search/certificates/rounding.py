"""Directed rounding: the processor rounds sums, products and quotients of columns upward for a while.

Lower ends are kept with their sign changed, so that rounding upward rounds them outward too. A result that a float has
exactly stays as it is: whole numbers below 2^53 lose nothing.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from shardmath.errors import InputError

#: FE_UPWARD of <fenv.h>, by processor.
_UPWARD = {"x86_64": 0x800, "AMD64": 0x800, "aarch64": 0x400000, "arm64": 0x400000}
#: Numbers of the trial: enough for whole vector registers and a rest.
_TRIED = 67


@contextmanager
def rounded_upward() -> Iterator[None]:
    """Round floats of this thread upward inside of the block.

    Raises InputError where the processor or its C library cannot, as a trial shows.
    """
    try:
        library = ctypes.CDLL(None)
        change, before = library.fesetround, library.fegetround()
    except (AttributeError, OSError, TypeError):  # Windows has no library without a name
        raise _refused() from None
    try:
        if change(_UPWARD.get(platform.machine(), -1)) != 0 or not _is_upward():
            raise _refused()
        with np.errstate(all="ignore"):  # what is not a number closes no box
            yield
    finally:
        change(before)


def _is_upward() -> bool:
    """Tell whether operations on columns round upward: thirds, and what is lost beside 1."""
    ones = np.ones(_TRIED)
    results = (ones / 3.0, ones + 2.0**-80, -(-ones - 2.0**-80), (ones + 2.0**-52) * (ones + 2.0**-52))
    expected = (float.fromhex("0x1.5555555555556p-2"), 1 + 2.0**-52, 1.0, 1 + 2.0**-50 - 2.0**-52)
    return all(bool((result == value).all()) for result, value in zip(results, expected, strict=True))


def _refused() -> InputError:
    rule = "must be handled where the rounding of a processor can be set: Linux or macOS on x86-64 or ARM64"
    return InputError("certificate", platform.platform(), rule)
