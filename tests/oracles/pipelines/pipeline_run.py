"""A toy pipeline that really runs, and the saved bytes of a rank meanwhile: the program of each process."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from oracles.instruments.saved import Saved
from torch import Tensor, nn
from torch.distributed import pipelining as api
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, ScheduleDualPipeV, ScheduleZBVZeroBubble
from torch.nn import functional

#: The ledger's schedules as PyTorch's classes.
CLASSES: dict[str, Any] = {
    "1f1b": api.Schedule1F1B, "gpipe": api.ScheduleGPipe, "interleaved": api.ScheduleInterleaved1F1B,
    "zero_bubble": api.ScheduleInterleavedZeroBubble, "zbv": ScheduleZBVZeroBubble, "dualpipev": ScheduleDualPipeV,
}
WIDTH, TOKENS = 8, 5


class Layer(nn.Module):
    """A layer that saves tensors of its own only, nothing that it received or sends on."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        """Run the MLP on a copy of the input."""
        return self.down(functional.silu(self.up(hidden.clone())))


def stages_of(schedule: str, ranks: int, rank: int, chunks: int) -> list[int]:
    """The stages of a rank: one after another in rounds, or there and back in a V."""
    if schedule in {"zbv", "dualpipev"}:
        return [rank, 2 * ranks - 1 - rank]
    return [rank + round * ranks for round in range(chunks)]


def run(rank: int, schedule: str, micro_batches: int, chunks: int, layers: int) -> tuple[int, int]:
    """Train one step; return the saved bytes of one chunk, and the most that this rank held of all chunks."""
    ranks = dist.get_world_size()
    parts = [nn.Sequential(*(Layer() for _ in range(layers))) for _ in range(chunks)]
    with Saved(*parts) as alone:
        output = parts[0](torch.zeros(TOKENS, WIDTH))
    chunk = alone.bytes(*parts)
    del output
    stages = [
        api.PipelineStage(part, stage, ranks * chunks, torch.device("cpu"))
        for stage, part in zip(stages_of(schedule, ranks, rank, chunks), parts, strict=True)
    ]
    single = issubclass(CLASSES[schedule], PipelineScheduleSingle)
    runner = CLASSES[schedule](stages[0] if single else stages, micro_batches, loss_fn=lambda out, _: out.sum())
    whole = torch.zeros(micro_batches * TOKENS, WIDTH)
    inputs = (whole,) if any(stage.is_first for stage in stages) else ()
    target = {"target": whole} if any(stage.is_last for stage in stages) else {}
    with Saved(*parts) as saved:
        runner.step(*inputs, **target)
    return chunk, saved.peak


def run_all(rank: int, cases: list[list[Any]]) -> list[tuple[int, int]]:
    """Run one case after another on this rank."""
    return [run(rank, *case) for case in cases]
