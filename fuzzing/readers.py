"""Everything that reads what somebody else wrote."""

from __future__ import annotations

from fuzzing import files, lines, states, tables
from fuzzing.reader import Reader

READERS: dict[str, Reader] = {
    reader.name: reader for reader in (*files.READERS, *tables.READERS, *states.READERS, *lines.READERS)
}
