"""Signals that ask to end: Ctrl-C, SIGTERM and SIGHUP, as Slurm, a shell and a closed terminal send them.

Most commands end at once and remove what is half-written. A command that has a partial answer asks for ``stopping``:
it finishes what it has begun, prints that answer, and ends with the exit code of the signal.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Windows has no SIGHUP.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Ended(KeyboardInterrupt):
    """A signal has asked the command to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Stop:
    """The signal that has asked for a stop, if one has."""

    number: int | None = None

    def __call__(self) -> bool:
        """Tell whether a stop was asked for."""
        return self.number is not None

    @property
    def exit_code(self) -> int:
        """The exit code after the signal, as shells have it."""
        return exit_code(self.number or signal.SIGINT)


def exit_code(number: int) -> int:
    """Return the exit code after a signal, as shells have it."""
    return 128 + number


def number_of(error: BaseException | None) -> int:
    """Return the signal behind an interruption, also where a library has raised its own exception in its place."""
    while error is not None and not isinstance(error, Ended):
        error = error.__cause__ or error.__context__
    return error.number if error is not None else signal.SIGINT


def heed() -> None:
    """Make each signal raise ``Ended``, unless whoever started the process had it ignored, as ``nohup`` does."""
    for number in _heeded():
        signal.signal(number, _end)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Turn the first signal in this block into a request.

    Ctrl-C pressed again ends at once. SIGTERM and SIGHUP come in pairs, from a shell and a terminal or from Slurm,
    so a second one changes nothing, nor does one while the answer is written.
    """
    stop = Stop()
    before = {number: signal.getsignal(number) for number in _heeded()}

    def ask(number: int, frame: FrameType | None) -> None:
        stop.number = stop.number or number
        _ignore_others()
        if signal.SIGINT in before:
            signal.signal(signal.SIGINT, before[signal.SIGINT])

    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        if not stop():
            for number, handler in before.items():
                signal.signal(number, handler)


def _heeded() -> list[signal.Signals]:
    """List the signals that are not ignored."""
    return [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _end(number: int, frame: FrameType | None) -> None:
    _ignore_others()  # what is half-written is removed now; only Ctrl-C may hurry it
    raise Ended(number)


def _ignore_others() -> None:
    for number in _SIGNALS:
        if number != signal.SIGINT:
            signal.signal(number, signal.SIG_IGN)
