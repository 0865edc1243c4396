"""Megatron-Core's data-parallel buffers and its optimizers on one rank of a fake job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.cpu_offloading.hybrid_optimizer import HybridDeviceOptimizer
from oracles.instruments.live import Live
from torch import Tensor, nn
from torch.optim import AdamW


def data_parallel(settings: Any, model: Any, *, distributed: bool, gradient_bytes: int) -> Any:
    """Wrap a model: its gradients, and with the distributed optimizer its weights, move into one bucket."""
    return DistributedDataParallel(
        settings,
        DistributedDataParallelConfig(
            use_distributed_optimizer=distributed, grad_reduce_in_fp32=gradient_bytes == 4, overlap_grad_reduce=False,
        ),
        model,
    )


def adamw(*wrapped: Any, distributed: bool, **others: Any) -> Any:
    """Make AdamW, or another optimizer, with fp32 master weights for all chunks of a model; nothing is clipped."""
    return get_megatron_optimizer(
        OptimizerConfig(
            lr=1e-3, bf16=True, params_dtype=torch.bfloat16, clip_grad=0.0,
            use_distributed_optimizer=distributed, **{"optimizer": "adam", **others},
        ),
        list(wrapped), use_gloo_process_groups=False,
    )


def step_on_lists(optimizer: Any, live: Live) -> tuple[int, list[int]]:
    """Step twice on lists of tensors, as PyTorch does on a GPU; return what the second makes, and elements of lists."""
    inner = [each.optimizer for each in getattr(optimizer, "chained_optimizers", [optimizer])]
    groups = [group for each in inner for group in each.param_groups]
    for group in groups:
        group["foreach"] = True
    optimizer.step()
    optimizer.zero_grad()
    before = live.now
    live.restart()
    optimizer.step()
    return live.peak - before, [sum(each.numel() for each in group["params"]) for group in groups]


def hybrid(parameters: Sequence[Tensor], offloaded: float) -> Any:
    """Make the optimizer that updates a share of the parameters on the host, with PyTorch's AdamW on both sides."""
    return HybridDeviceOptimizer(
        [{"params": [nn.Parameter(one) for one in parameters]}], offload_fraction=offloaded,
        cpu_optimizer_cls=AdamW, gpu_optimizer_cls=AdamW, param_update_in_fp32=True,
        overlap_cpu_optimizer_d2h_h2d=False,
    )
