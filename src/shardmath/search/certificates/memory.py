"""Memory of columns: the C library keeps what they free, as the next operation takes as much again."""

from __future__ import annotations

import ctypes

#: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>, and their bytes: the largest that glibc takes for the second.
#: Columns of one batch take far less.
_SETTINGS = ((-1, 1 << 28), (-3, 1 << 25))


def keep_freed_memory() -> None:
    """Let this process keep memory that is freed; where its C library has no such setting, nothing changes.

    Pages that are given back after each operation, and taken and cleared again for the next one, cost a fifth of a
    check.
    """
    try:
        change = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS and Windows
        return
    for setting, size in _SETTINGS:
        change(setting, size)
