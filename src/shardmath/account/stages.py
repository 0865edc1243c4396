"""A pipeline stage with its GPU, as answers show it where the GPUs of stages differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardmath.answers import Answer


@dataclass(frozen=True)
class StageOnGpu(Answer):
    """One pipeline stage on its kind of GPU."""

    rank: int
    """Pipeline rank."""
    gpu: str
    """Name of its GPU."""
    gpu_memory: int
    """Bytes of memory of its GPU."""
    gpus: int
    """GPUs of the stage."""
    layers: int
    """Layers of the stage."""
    microbatch_seconds: float | None
    """Seconds of one micro-batch, forward and backward; null where no time is known."""
    busy: float | None
    """Share of the step in which the stage works on micro-batches; null with ``microbatch_seconds``."""


def in_chunks(layers: Sequence[int], values: Mapping[str, int]) -> tuple[int, ...]:
    """Return layers of each chunk in the order of the model, from those of each stage, whose chunks are equal."""
    chunks = values["virtual_pipeline"]
    return tuple(count // chunks for count in layers) * chunks
