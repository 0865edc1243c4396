"""DeepSpeed on ranks with Gloo, as the oracles of its steps, optimizers and experts start it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def started(rank: int, ranks: int) -> Any:
    """Return the module ``deepspeed`` with its process group; what it prints goes to the error stream."""
    os.dup2(2, 1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    deepspeed = import_module("deepspeed")
    deepspeed.init_distributed("gloo")
    return deepspeed
