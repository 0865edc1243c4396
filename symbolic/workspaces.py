"""Sizes of cuBLAS workspaces, which follow the GPU: what Transformer Engine makes, and what PyTorch does."""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024
_MIB = 1024 * _KIB

#: Bytes of one workspace of PyTorch: 2 x 4096 KiB + 8 x 16 KiB by default, 8 x 4096 KiB for large GPUs.
_SMALL, _LARGE = 2 * 4096 * _KIB + 8 * 16 * _KIB, 8 * 4096 * _KIB


@dataclass(frozen=True)
class Workspaces:
    """Bytes of one workspace of Transformer Engine and of one of PyTorch, and where they are of these sizes."""

    engine: int
    torch: int
    meaning: str


WORKSPACES: dict[str, Workspaces] = {
    "ampere": Workspaces(4 * _MIB, _SMALL, "compute capability below 9"),
    "hopper": Workspaces(32 * _MIB + _KIB, _LARGE, "compute capability 9.0"),
    "blackwell": Workspaces(32 * _MIB + _KIB, _SMALL, "compute capability 10.0, PyTorch up to 2.10"),
    "configured": Workspaces(4 * _MIB, _LARGE, "as ampere, with CUBLAS_WORKSPACE_CONFIG=:4096:8 (deterministic)"),
}
#: Where nothing is known of the GPU.
USUAL = WORKSPACES["hopper"]
