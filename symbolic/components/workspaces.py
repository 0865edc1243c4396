"""Workspaces of cuBLAS: one that Transformer Engine makes, and one for each thread that calls PyTorch's products."""

from __future__ import annotations

from ..dimension import Dimension
from ..dimensions import ENGINE_WORKSPACE, TORCH_WORKSPACE
from ..ledger import Component, Lifetime, Place, Role, Tensor

#: The backward pass runs in a thread of its own, which has a handle and so a workspace of its own.
_THREADS = ("forward", "backward")
#: Products of several experts run in streams of their own, each with a workspace.
_STREAMS = 4


def _buffer(name: str, size: Dimension, source: str, meaning: str) -> Tensor:
    return Tensor(name, "workspace", Role.BUFFER, (size,), 1, Lifetime.SHARED, source, meaning)


_OF_ENGINE = (_buffer("gemm", ENGINE_WORKSPACE, "transformer_engine", "workspace of all products of the layers"),)
_OF_TORCH = tuple(
    _buffer(thread, TORCH_WORKSPACE, "cublas_workspaces", f"workspace of the products of the {thread} pass")
    for thread in _THREADS
)
_OF_EXPERTS = tuple(
    _buffer(f"stream_{stream}", ENGINE_WORKSPACE, "transformer_engine",
            "workspace of the experts' products in one stream")
    for stream in range(_STREAMS)
)

COMPONENTS = (
    Component(
        "expert_workspace", "Workspaces of Transformer Engine for experts", 99, Place.EXPERTS, _OF_EXPERTS,
        note="Made with the first grouped product, beside the workspace that the other layers have.",
        options={"peak": ("megatron_te",), "layers": ("experts",), "expert_products": ("grouped",)},
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
    Component(
        "thread_workspace", "Workspaces of PyTorch in nanotron", 103, Place.STAGE, _OF_TORCH,
        options={"data_parallel": ("torch_ddp",)},
    ),
    Component(
        "step_workspace", "Workspaces of PyTorch in its own step", 104, Place.STAGE, _OF_TORCH,
        note="Seen in traces of Transformers on one H100, alone and with FSDP2; other steps are compared with runs that"
             " have no GPU.",
        options={"peak": ("torch",), "data_parallel": ("ddp", "fsdp"), "gathered_input": ("dropped",)},
    ),
)
