"""Workspaces of cuBLAS: one that Transformer Engine makes, and one for each thread that calls PyTorch's products."""

from __future__ import annotations

from ..ledger import Component, Lifetime, Place, Role, Tensor

_KIB = 1024
_MIB = 1024 * _KIB

#: Bytes of the workspace of Transformer Engine, by option of the axis ``workspace``.
_ENGINE = {"ampere": 4 * _MIB, "hopper": 32 * _MIB + _KIB, "blackwell": 32 * _MIB + _KIB, "configured": 4 * _MIB}
#: Bytes of one workspace of PyTorch: 2 x 4096 KiB + 8 x 16 KiB by default, 8 x 4096 KiB for large GPUs.
_SMALL, _LARGE = 2 * 4096 * _KIB + 8 * 16 * _KIB, 8 * 4096 * _KIB
_TORCH = {"ampere": _SMALL, "hopper": _LARGE, "blackwell": _SMALL, "configured": _LARGE}
#: The backward pass runs in a thread of its own, which has a handle and so a workspace of its own.
_THREADS = ("forward", "backward")


def _buffer(name: str, size: int, source: str, meaning: str, workspaces: tuple[str, ...]) -> Tensor:
    return Tensor(name, "workspace", Role.BUFFER, (), size, Lifetime.SHARED, source, meaning,
                  options={"workspace": workspaces})


def _sizes(found: dict[str, int]) -> dict[int, tuple[str, ...]]:
    """The options by size, each size once."""
    return {size: tuple(name for name, other in found.items() if other == size) for size in found.values()}


_OF_ENGINE = tuple(
    _buffer(f"gemm_{'_'.join(names)}", size, "transformer_engine", "workspace of all products of the layers", names)
    for size, names in _sizes(_ENGINE).items()
)
_OF_TORCH = tuple(
    _buffer(f"{thread}_{'_'.join(names)}", size, "cublas_workspaces", f"workspace of the products of the {thread} pass",
            names)
    for size, names in _sizes(_TORCH).items()
    for thread in _THREADS
)

#: Products of several experts run in streams of their own, each with a workspace.
_STREAMS = 4
_OF_EXPERTS = tuple(
    _buffer(f"stream_{stream}_{'_'.join(names)}", size, "transformer_engine",
            "workspace of the experts' products in one stream", names)
    for size, names in _sizes(_ENGINE).items()
    for stream in range(_STREAMS)
)

COMPONENTS = (
    Component(
        "expert_workspace", "Workspaces of Transformer Engine for experts", 99, Place.EXPERTS, _OF_EXPERTS,
        note="Made with the first grouped product, beside the workspace that the other layers have.",
        options={"peak": ("megatron_te",), "layers": ("experts",)},
    ),
    Component(
        "engine_workspace", "Workspace of Transformer Engine", 100, Place.STAGE, _OF_ENGINE,
        options={"peak": ("megatron_te",)},
    ),
    Component(
        "head_workspace", "Workspaces of PyTorch for the LM head", 101, Place.LAST, _OF_TORCH,
        note="Layers of Transformer Engine call cuBLAS by themselves, so only the stage with the head has these.",
        options={"peak": ("megatron_te",)},
    ),
    Component(
        "torch_workspace", "Workspaces of PyTorch", 102, Place.STAGE, _OF_TORCH,
        options={"peak": ("megatron_local",)},
    ),
)
