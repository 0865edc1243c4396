"""Library defaults by kind of GPU: sizes of cuBLAS workspaces, and the attention of Transformer Engine."""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024
_MIB = 1024 * _KIB

#: Bytes of one workspace of PyTorch: 2 x 4096 KiB + 8 x 16 KiB by default, 8 x 4096 KiB for large GPUs.
_SMALL, _LARGE = 2 * 4096 * _KIB + 8 * 16 * _KIB, 8 * 4096 * _KIB


@dataclass(frozen=True)
class Libraries:
    """Bytes of one workspace of Transformer Engine and of one of PyTorch, and whether attention copies its output.

    Transformer Engine chooses FlashAttention below compute capability 9, which puts the batch first, and cuDNN's
    fused attention from there on (``get_attention_backend``).
    """

    engine: int
    torch: int
    copies: int
    meaning: str


LIBRARIES: dict[str, Libraries] = {
    "ampere": Libraries(4 * _MIB, _SMALL, 1, "compute capability below 9"),
    "hopper": Libraries(32 * _MIB + _KIB, _LARGE, 0, "compute capability 9.0"),
    "blackwell": Libraries(32 * _MIB + _KIB, _LARGE, 0, "compute capability 10 and 12, PyTorch 2.12 and later"),
}
#: Where nothing is known of the GPU.
USUAL = LIBRARIES["hopper"]
#: Bytes of one workspace of PyTorch where the GPU does not decide: a variable of the environment, an older version.
TORCH_WORKSPACES: dict[str, tuple[int, str]] = {
    "configured": (_LARGE, "CUBLAS_WORKSPACE_CONFIG=:4096:8 (deterministic), which PyTorch alone reads"),
    "before 2.12": (_SMALL, "PyTorch up to 2.11 on compute capability 10 and 12 (pytorch/pytorch#175344)"),
}
