"""Published facts that people look up by name: models, GPUs, links and networks.

The facts are TOML tables beside this file, so that a model or a GPU is added without touching code. The readers check
if an entry is legal: ``shardmath.models`` and ``shardmath.machines``.
"""

import tomllib
from pathlib import Path
from typing import Any

__all__ = ["read"]


def read(name: str) -> dict[str, Any]:
    """Read all entries of one table file, by entry name and in file order.

    ``name`` is the file's name without its ending: ``"models"`` or ``"gpus"``, say. Raises
    ``FileNotFoundError`` for another name and ``tomllib.TOMLDecodeError`` for a broken file: both are
    faults of the installation, not of a person's input.
    """
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
