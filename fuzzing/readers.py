"""Everything that reads what somebody else wrote."""

from __future__ import annotations

from fuzzing import files, launched, lines, states, tables
from fuzzing.reader import Reader

READERS: dict[str, Reader] = {
    reader.name: reader for part in (files, launched, tables, states, lines) for reader in part.READERS
}
