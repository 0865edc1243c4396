"""Ctrl-C as a request: what runs ends what it has begun, and says how far it came. Pressed again, it ends at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C was pressed in this block."""
    pressed = Event()
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: FrameType | None) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
