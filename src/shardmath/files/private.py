"""Folders and files that nobody but the user, or root, can have written or can replace.

A folder is as safe as every folder above it: whoever may write to one of those could put another in its place. The
check goes from the root downwards, as that of OpenSSH for keys. So once it has passed, nobody else can change the path
before it is used. A sticky folder such as /tmp is safe: others may create entries there, which then belong to them, but
neither rename nor remove those of the user.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

#: Bits that let the group or others write.
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
#: Links that a path may lead through, as Linux has it.
_LINKS = 40


class UnsafeError(PermissionError):
    """Somebody else can write here; the message says where, and what to do."""

    def __init__(self, path: Path, rule: str) -> None:
        super().__init__(errno.EPERM, rule, str(path))


def make_folder(path: Path) -> None:
    """Make the folders of ``path`` that are missing, for the user alone, and check it: see ``check_folder``."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            check_folder(folder.parent)
            folder.mkdir(0o700, exist_ok=True)
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raise UnsafeError if another user may change what an absolute ``path`` leads to; OSError if it is no folder."""
    if not hasattr(os, "geteuid"):
        return  # Windows says nothing in the mode of a file
    place, pending, links = Path(path.anchor), [*reversed(path.parts[1:])], 0
    _check(place, os.lstat(place))
    while pending:
        step = pending.pop()
        if step == "..":
            place = place.parent
            continue
        entry = place / step
        about = os.lstat(entry)
        _check(entry, about)
        if not stat.S_ISLNK(about.st_mode):
            place = entry
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(entry))
        pending += reversed(target.parts[target.is_absolute():])
        place = Path(target.anchor) if target.is_absolute() else place


def open_file(path: Path) -> int:
    """Open a regular file for reading that the user or root alone has written.

    Raises UnsafeError for any other owner, kind or mode, by the open file itself, and OSError where there is none.
    """
    flags = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
    handle = os.open(path, os.O_RDONLY | sum(getattr(os, name, 0) for name in flags))
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise UnsafeError(path, "is no regular file")
        if hasattr(os, "geteuid"):
            _check_owner(path, about)
            if about.st_mode & _OTHERS:
                raise UnsafeError(path, "may be written by other users")
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check(path: Path, about: os.stat_result) -> None:
    _check_owner(path, about)
    if stat.S_ISLNK(about.st_mode):
        return  # the mode of a link says nothing: its folder was checked
    if not stat.S_ISDIR(about.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if about.st_mode & _OTHERS and not about.st_mode & stat.S_ISVTX:
        raise UnsafeError(path, "may be written by other users; chmod go-w it, or set XDG_CACHE_HOME")


def _check_owner(path: Path, about: os.stat_result) -> None:
    if about.st_uid not in (0, os.geteuid()):
        raise UnsafeError(path, "belongs to another user")
