"""Generated pages of the documentation: written, or compared with those that are there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path


def settle(fresh: Mapping[Path, str], check: bool) -> int:
    """Write files by path, or with ``check`` print how those that are there differ; return 1 if they do."""
    if not check:
        for path, text in fresh.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return 0
    stored = {path: path.read_text(encoding="utf-8") if path.exists() else "" for path in fresh}
    for path, text in fresh.items():
        name = f"{path.parent.name}/{path.name}"
        sys.stdout.writelines(
            unified_diff(stored[path].splitlines(True), text.splitlines(True), name, f"{name} (fresh)"))
    return int(stored != fresh)
