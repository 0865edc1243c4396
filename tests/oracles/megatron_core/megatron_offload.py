"""Run steps of Megatron-Core with its own offload of modules, and note where its saved tensors are.

Models, schedules and the offload itself are Megatron-Core's own, on one rank of fakes. A copy is done when it is asked
for, in memory that is not pinned and that no count of the GPU has.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from megatron.core.extensions import transformer_engine
from megatron.core.pipeline_parallel import fine_grained_activation_offload as offload
from oracles.megatron_core.megatron_combined import Alive, run_step
from oracles.megatron_core.megatron_cpu import Shape
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes


class Places:
    """The most bytes of saved tensors of the module that are on the GPU and on the host at once, in the last step."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start anew."""
        self.here = self.host = self.saved = 0

    def look(self) -> None:
        """Add up what the chunks of all micro-batches in flight keep."""
        here = host = 0
        for chunk in offload.PipelineOffloadManager.get_instance()._cached_chunks_forward:
            for group in chunk.offload_groups:
                for state in group._tensors.values():
                    if isinstance(state, tuple):
                        host += state[1].untyped_storage().nbytes()
                    elif not isinstance(state, nn.Parameter):
                        here += state.untyped_storage().nbytes()
        self.here, self.host = max(self.here, here), max(self.host, host)


def run_offloaded(shape: Shape, draw: Random, modules: tuple[str, ...], **settings: Any) -> Places:
    """Run two steps, of which the first only finds out what is there; return the places of the second.

    ``saved`` is the most that the GPU holds when a forward pass has returned.
    """
    places = Places()

    def watch(name: str, alive: Alive) -> None:
        if name == "loss":
            places.saved = max(places.saved, alive.now)
        elif name == "step":
            steps.append((places.here, places.host, places.saved))
            places.restart()

    steps: list[Any] = []
    own: dict[str, Any] = {"fine_grained_activation_offloading": True, "offload_modules": list(modules)}
    with pytest.MonkeyPatch.context() as patched:
        _patch(patched, places)
        run_step(shape, draw, watch, combined=False, steps=2, **(own if modules else {}), **settings)
    places.here, places.host, places.saved = steps[-1]
    return places


def _patch(patched: pytest.MonkeyPatch, places: Places) -> None:
    copy = offload.ChunkOffloadHandler.offload

    def copied(handler: Any, tensor: Tensor, use_cpu_pool: bool) -> Any:
        with _disable_current_modes():
            return copy(handler, tensor, pin_memory=False, use_cpu_pool=use_cpu_pool)

    def looked(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(handler: Any, *given: Any) -> Any:
            result = original(handler, *given)
            places.look()
            return result
        return run

    patched.setattr(offload.ChunkOffloadHandler, "offload", copied)
    for name in ("tensor_push", "tensor_pop", "bulk_offload", "bulk_reload"):
        patched.setattr(offload.ChunkOffloadHandler, name, looked(getattr(offload.ChunkOffloadHandler, name)))
    patched.setattr(offload, "print_offload_summary_table", lambda _: None)
    patched.setattr(offload.PipelineOffloadManager, "OFFLOAD_MGR", None)
    patched.setattr(transformer_engine, "cpu_offload", SimpleNamespace(), raising=False)
    patched.setattr(transformer_engine, "set_save_original_input",
                    lambda module: setattr(module, "keeps_original", True), raising=False)
