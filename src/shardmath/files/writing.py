"""Files that appear whole or not at all: written beside their place and renamed at the end."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, TextIO

from shardmath.errors import InputError

try:
    import fcntl
except ImportError:  # not on Windows: what a killed process leaves there stays
    fcntl = None  # type: ignore[assignment]

#: The end of the name of what is not whole yet.
PARTIAL = ".partial"
#: Characters of a name that its unfinished file begins with: names have an end of their own, at 255 bytes.
_BEGUN = 40
#: Flags of a new file. The kernel applies the umask: no thread can read that without changing it for all.
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
#: Seconds in which a new file is locked by whoever writes it.
_YOUNG = 60.0
#: The standard output while a file has it for itself.
_reserved: ContextVar[TextIO | None] = ContextVar("reserved", default=None)


@contextmanager
def standard_output_for_a_file() -> Iterator[None]:
    """Keep the standard output for the file ``-``: all else goes to the standard error."""
    before = _reserved.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _reserved.reset(before)


@contextmanager
def whole_file(field: str, path: str, mode: str = "w") -> Iterator[IO[str] | IO[bytes]]:
    """Open a new file for ``path``; it takes its place when the block ends without an error.

    ``-`` is the standard output, and a link is followed. Raises InputError, which blames ``field``, where no file can
    be written, and for what is there and is no file: a folder, a device, a pipe.
    """
    if path == "-":
        output = _reserved.get() or sys.stdout
        yield output if "b" not in mode else output.buffer
        return
    if "\0" in path:
        raise InputError(field, path, "must not have a character with the code 0")
    try:
        target = Path(os.path.realpath(path))
    except UnicodeEncodeError:
        raise InputError(field, path, "must be a name that a file can have") from None
    if os.path.isdir(target):
        raise InputError(field, path, "must be a file, not a directory")
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(field, path, "must be a regular file, or - for the standard output")
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise InputError(field, path, "must be a file that can be written: Permission denied")
    try:
        with suppress(FileNotFoundError):
            os.lstat(target)  # a name that is too long is told before anything is computed for it
        with replacing(target, mode) as file:
            yield file
    except UnicodeEncodeError as error:
        raise InputError(field, path, f"must be written in UTF-8, which lacks {error.object[error.start]!r}") from None
    except OSError as error:
        if error.filename is not None and str(target.parent) not in str(error.filename):
            raise  # of another file
        raise InputError(field, path, f"must be a file that can be written: {error.strerror or error}") from None


@contextmanager
def replacing(target: Path, mode: str = "wb", permissions: int = 0o666) -> Iterator[IO[Any]]:
    """Yield a new file that takes the place of ``target`` when the block ends without an error.

    It has ``permissions`` but for what the umask takes away. Leftovers of killed processes are removed.
    Raises OSError where no file can be written.
    """
    beginning = f".{target.name[:_BEGUN]}."
    _remove_abandoned(target.parent, beginning)
    name = target.parent / f"{beginning}{secrets.token_hex(8)}{PARTIAL}"
    try:
        handle = os.open(name, _NEW, permissions)
        text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
        with os.fdopen(handle, mode, **text) as file:
            if fcntl is not None:
                with suppress(OSError):  # some network file systems have no locks
                    fcntl.flock(file, fcntl.LOCK_EX)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def _remove_abandoned(folder: Path, beginning: str) -> None:
    """Remove unfinished files that nobody writes any more: their locks ended with the processes that held them."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(beginning) and entry.name.endswith(PARTIAL)):
                continue
            if not entry.is_file(follow_symlinks=False) or time.time() - entry.stat().st_mtime < _YOUNG:
                continue
            with suppress(OSError), open(entry.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry.path)
