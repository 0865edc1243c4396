"""How much a run of these tests tries: few random cases or all, and from which seed."""

from __future__ import annotations

import os
from typing import Any

FULL = os.environ.get("ORACLES", "") == "full"
SEED = int(os.environ.get("ORACLES_SEED", "0"))


def cases(test: Any, *, full: bool = FULL) -> int:
    """How many random cases a test wants, by its marker; TypeError for a test that draws and does not say so."""
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "cases":
            return int(mark.args[full])
    raise TypeError(f"{test.__name__} draws, so it needs @pytest.mark.cases(fast, full)")
