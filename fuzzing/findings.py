"""Faults of readers, once for each place in the code, with the input that repeats it."""

from __future__ import annotations

import hashlib
import traceback
from pathlib import Path

from fuzzing.reader import ROOT

CACHE = ROOT / ".cache" / "fuzzing"


def folder_of(reader: str) -> Path:
    """Return the folder of a reader, with ``corpus`` and ``findings``."""
    return CACHE / reader


def keep(reader: str, data: bytes, error: BaseException) -> bool:
    """Keep an input with its traceback, unless there is one from the same place; whether it is new."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "fuzzing" not in frame.filename]
    place = "|".join(f"{frame.filename}:{frame.name}:{frame.lineno}" for frame in frames[-3:])
    kind = hashlib.sha256(f"{type(error).__name__}|{place or str(error)[:40]}".encode()).hexdigest()[:12]
    folder = folder_of(reader) / "findings"
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / kind).exists():
        return False
    (folder / kind).write_bytes(data)
    text = "".join(traceback.format_exception(error))
    head = f"{type(error).__name__}: {str(error)[:500]}"
    (folder / f"{kind}.txt").write_text(f"{head}\n\n{text[-4000:]}", "utf-8", "replace")
    return True


def found(reader: str) -> list[Path]:
    """Return the inputs that are kept, those of crashes of the whole process among them."""
    return [path for path in sorted((folder_of(reader) / "findings").glob("*")) if path.suffix != ".txt"]
