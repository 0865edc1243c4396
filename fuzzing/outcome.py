"""Rules of every reader: answer any input, or refuse it in one printable line; and forbidden actions."""

from __future__ import annotations

import atexit
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from shardmath.errors import InputError

#: Seconds of the processor, and bytes beyond those at the start, that one input may take.
SECONDS, MEMORY = 10.0, 2**30
#: Forbidden to readers: starting or loading a program, unpickling, connecting, sending signals.
_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.startfile", "subprocess.Popen",
    "pickle.find_class", "socket.connect", "socket.bind", "os.kill", "os.chown",
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: While a reader is at work: the folders that it may write to.
_watched: list[str] = []


class Finding(Exception):  # noqa: N818  a finding is an error of what is tested
    """A forbidden action of a reader, with its input."""


def outcome(read: Callable[[], object]) -> str:
    """``answered`` or ``refused``. Raises whatever else happens, and Finding for a line that is none."""
    try:
        read()
    except InputError as error:
        line = str(error)
        if not line.isprintable() or len(line) > 2_000:
            raise Finding(f"not one short printable line: {line!r:.300}") from error
        return "refused"
    return "answered"


@contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Raise Finding if the block takes more of the processor or of memory than one input may."""
    def late(number: int, frame: FrameType | None) -> None:
        raise Finding(f"more than {seconds:g} s")

    before, largest = signal.signal(signal.SIGPROF, late), _largest()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if _largest() - largest > MEMORY:
        raise Finding(f"{(_largest() - largest) / 2**20:.0f} MiB more memory")


def untimed(module: Any, name: str) -> None:
    """Let a function of a module take its time, unwatched: what is derived, compiled or found sealed in the cache.

    They happen once, for whatever input asks for it first, and no byte of the input is in them.
    """
    function = getattr(module, name)

    def unhurried(*arguments: Any, **options: Any) -> Any:
        left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
        folders = [*_watched]
        _watched.clear()
        try:
            return function(*arguments, **options)
        finally:
            _watched[:] = folders
            signal.setitimer(signal.ITIMER_PROF, left)

    setattr(module, name, unhurried)


@contextmanager
def watched(*folders: str) -> Iterator[None]:
    """Raise Finding if what runs in the block starts a program, or writes to a file outside of ``folders``."""
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked.append(True)
    _watched[:] = [*map(os.path.realpath, folders), "/dev/null"]
    try:
        yield
    finally:
        _watched.clear()


_hooked: list[bool] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched:
        return
    if event in _FORBIDDEN:
        raise Finding(f"{event}{arguments!r:.200}")
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES and not isinstance(
        arguments[0], int
    ):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if not any(path == folder or path.startswith(f"{folder}{os.sep}") for folder in _watched):
            # To the command line this is a file that it may not write.
            raise PermissionError(13, "Permission denied", path)


def _largest() -> int:
    """Bytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def scratch_folder() -> str:
    """Return a new folder, in memory where there is such a file system; it goes with the process."""
    path = tempfile.mkdtemp(prefix="shardmath-fuzzing-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
