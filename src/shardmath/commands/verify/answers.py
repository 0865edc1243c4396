"""The answer of ``verify``: a measured run beside its prediction."""

from __future__ import annotations

from dataclasses import dataclass

from shardmath.answers import Answer


@dataclass(frozen=True)
class Verified(Answer):
    """One measured run, and what the ledger says of it."""

    by: str
    """Program that measured."""
    versions: str
    """Versions of the libraries that it ran with."""
    model: str
    """Name of the model."""
    gpu: str
    """GPU that the prediction is for."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    layout: str
    """Sizes of the parallel dimensions that are not 1, micro-batch and recompute mode."""
    num_gpus: int
    """GPUs of the run."""
    seq_length: int
    """Tokens of one sequence."""
    global_batch_size: int
    """Sequences of one step."""
    rank: int
    """Pipeline rank with the largest predicted peak."""
    predicted_allocated_bytes: int
    """Predicted bytes of tensors at the peak."""
    measured_allocated_bytes: int
    """Measured ones."""
    allocated_error: float
    """Predicted over measured, minus 1."""
    predicted_reserved_bytes: int
    """Predicted bytes that the caching allocator reserves: replayed, or from the share of what is allocated."""
    measured_reserved_bytes: int | None
    """Measured ones; null without a GPU."""
    reserved_error: float | None
    """Predicted over measured, minus 1."""
    is_in_range: bool | None
    """True if what was reserved lies inside of the predicted range; null without a GPU."""
