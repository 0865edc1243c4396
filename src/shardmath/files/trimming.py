"""The size and the age of the user's cache: what nobody used for long goes, then what was used longest ago."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shardmath.files.private import check_folder
from shardmath.files.writing import PARTIAL

#: Bytes of all files of the cache at most, and days without use after which a file goes.
LARGEST, DAYS = 1 << 30, 90
_DAY = 86_400.0


@dataclass(frozen=True)
class _Kept:
    used: float
    size: int
    path: str


def note_use(path: Path) -> None:
    """Set the time of a file that was used, once a day at most; a cache that cannot be written stays as it is."""
    with suppress(OSError):
        if os.lstat(path).st_mtime < time.time() - _DAY:
            os.utime(path)


def trim(folder: Path, newest: Path) -> None:
    """Remove files below ``folder`` by the rule, of all versions but never ``newest``, and folders that are then empty.

    Links are neither followed nor removed, and files that another process still writes are left alone. An OSError is
    not raised: another process may have removed a file.
    """
    with suppress(OSError):
        check_folder(folder)
        files = sorted(_files(str(folder)), key=lambda file: (file.used, file.path))
        size, last = sum(file.size for file in files), time.time() - DAYS * _DAY
        for file in files:
            if file.path == str(newest) or (file.used >= last and size <= LARGEST):
                continue
            with suppress(OSError):
                os.unlink(file.path)
                size -= file.size
                _remove_empty(Path(file.path).parent, folder)


def _files(folder: str) -> Iterator[_Kept]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif not entry.name.endswith(PARTIAL):
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(about.st_mode):
                    yield _Kept(about.st_mtime, about.st_size, entry.path)


def _remove_empty(folder: Path, top: Path) -> None:
    with suppress(OSError):  # not empty
        while folder != top:
            folder.rmdir()
            folder = folder.parent
