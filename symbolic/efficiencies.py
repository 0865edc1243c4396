"""Shares of their peak that matrix products and attention reach, which follow the GPU's architecture.

They are the figures that publications give for large shapes; a calibration replaces them by those of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .sources import BY_KEY


@dataclass(frozen=True)
class Efficiencies:
    """Per mille of the peak that a large product and FlashAttention-2 reach, and who says so."""

    matmul_per_mille: int
    attention_per_mille: int
    meaning: str
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse figures that cite nothing."""
        if not self.sources or not set(self.sources) <= set(BY_KEY):
            raise ValueError(f"unknown source among {self.sources}")

    @property
    def values(self) -> Mapping[str, int]:
        """The figures by parameter name."""
        return {"matmul_per_mille": self.matmul_per_mille, "attention_per_mille": self.attention_per_mille}


EFFICIENCIES: dict[str, Efficiencies] = {
    "ampere": Efficiencies(800, 500, "compute capability below 9", ("dao2023",)),
    "hopper": Efficiencies(700, 350, "compute capability 9.0", ("dao2023", "shah2024")),
    "blackwell": Efficiencies(700, 350, "compute capability 10.0, taken to be as before it", ("shah2024",)),
}
