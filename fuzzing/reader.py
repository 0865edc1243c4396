"""One reader: where its inputs begin, the words of its format, and what it does with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"


@dataclass(frozen=True)
class Reader:
    """``read`` takes an input and a folder of its own; it returns ``answered`` or ``refused``, or raises a finding.

    ``seeds`` are published examples, ``words`` what a format knows. ``share`` is how many inputs it gets beside others.
    ``many`` says whether its seeds are long enough to be mixed.
    """

    name: str
    read: Callable[[bytes, str], str]
    seeds: Callable[[], Sequence[bytes]]
    words: Callable[[], Sequence[bytes]] = tuple
    share: int = 1


def in_file(data: bytes, folder: str, name: str) -> str:
    """Return the path of a file with an input."""
    path = f"{folder}/{name}"
    with open(path, "wb") as file:
        file.write(data)
    return path
