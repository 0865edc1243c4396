"""Adapters of PEFT where all is in fp32, without autocast: as ``lora``."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from oracles.libraries.lora import adapted, trained

TABLE = "lora_in_fp32"


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Train one step with AdamW."""
    return trained(adapted(row, torch.float32), row)
