"""How much a run of these tests tries: few random cases or all, and from which seed."""

from __future__ import annotations

import os

FULL = os.environ.get("ORACLES", "") == "full"
SEED = int(os.environ.get("ORACLES_SEED", "0"))
