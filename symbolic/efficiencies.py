"""Constants of time that follow from a GPU's generation, and how far predictions with them were from measured steps.

Shares of peaks and the gap between kernels are fitted to one half of the public runs on GPUs of a generation
(validation/timed/presets.py); the other half judges them. A calibration replaces them by those of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .parameters import BY_NAME, Kind
from .sources import BY_KEY


@dataclass(frozen=True)
class Efficiencies:
    """Parameters of the machine by name, the GPUs that have them, the date of the fit, and who measured.

    ``error_per_mille``: nine of ten predicted steps were within it, runs of the same model on the same GPUs left out
    of the fit. ``measured``: compute capability of the GPUs of those runs; others of the generation have no error.
    ``gpus``: the GPUs themselves by their names in the catalogue, those of models with experts too.
    """

    values: Mapping[str, int]
    error_per_mille: int
    measured: str
    gpus: tuple[str, ...]
    meaning: str
    date: str
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse parameters that no machine has, and figures that cite nothing."""
        if any(BY_NAME[name].kind is not Kind.MACHINE for name in self.values):
            raise ValueError(f"not of a machine: {sorted(self.values)}")
        if not self.sources or not set(self.sources) <= set(BY_KEY):
            raise ValueError(f"unknown source among {self.sources}")


#: Lengths at which causal attention reaches half of its rate: of FlashAttention 2 and 3 on A100 and H100, and of the
#: fourth on B200, which makes 829, 1172 and 1431 TFLOP/s of 1024, 2048 and 4096 tokens.
_HALF_LENGTH = {"flash": 500, "flash4": 1200}


#: Latency of a collective beside that of its steps on a server of B200: mean of 23.1 and 25.6 us of all-gather and
#: reduce-scatter (``simumax``, configs/system/b200_bf16_ceperm.json at commit 4dcaae51). Older GPUs: NCCL's own model.
_COLLECTIVE_OF_B200 = {"collective_latency_ns": 24_300}


def _fitted(
    matmul: int, attention: int, hbm: int, node: int, network: int, kernel_ns: int, kernel: str,
) -> dict[str, int]:
    return {
        "matmul_per_mille": matmul, "attention_per_mille": attention, "hbm_per_mille": hbm, "node_per_mille": node,
        "network_per_mille": network, "kernel_ns": kernel_ns, "attention_half_length": _HALF_LENGTH[kernel],
    }


EFFICIENCIES: dict[str, Efficiencies] = {
    "ampere": Efficiencies(
        _fitted(808, 489, 778, 726, 515, 4_044, "flash"), 111, "8.0", ("a100-40gb", "a100-80gb"),
        "compute capability below 9", "2026-11",
        ("fujii2024", "hagemann2023", "korthikanti2022", "torchtitan", "dao2023"),
    ),
    "hopper": Efficiencies(
        _fitted(670, 368, 736, 679, 584, 4_991, "flash"), 76, "9.0", ("h100-80gb",),
        "compute capability 9.0", "2026-11",
        ("nvidia_throughput", "torchtitan", "shah2024"),
    ),
    "blackwell": Efficiencies(
        {**_fitted(555, 424, 601, 641, 770, 3_931, "flash4"), **_COLLECTIVE_OF_B200}, 102, "10.0",
        ("b200-180gb", "gb200-186gb"), "compute capability 10.0", "2026-11",
        ("nvidia_throughput", "simumax", "flash_attention"),
    ),
    "blackwell_ultra": Efficiencies(
        _fitted(780, 324, 817, 694, 700, 3_863, "flash4"), 134, "10.3", ("b300-270gb", "gb300-279gb"),
        "compute capability 10.3", "2026-11",
        ("nvidia_throughput", "flash_attention"),
    ),
}

#: Per mille of the measured time that nine of ten predicted steps of models with experts were within. Constants are
#: fitted to none of them; they ran on Hopper, Blackwell and Blackwell Ultra (``nvidia_throughput``).
ERROR_OF_EXPERTS = 233
