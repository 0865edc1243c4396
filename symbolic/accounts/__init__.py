"""The accounts of one implementation: from its ledger rows to the bytes of every stage and the peak."""

from __future__ import annotations

from .build import build
from .rows import components_of, kept_rows, weight_tensors

__all__ = ["build", "components_of", "kept_rows", "weight_tensors"]
