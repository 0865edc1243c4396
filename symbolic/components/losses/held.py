"""Logits that a caller holds beside the loss, until its backward pass is over."""

from __future__ import annotations

from typing import Any

from ...choices import BY_NAME
from ...dimension import ONE, Dimension
from ...ledger import Tensor, transient

COMPONENTS = ()

_OF_LOSS = ("after_forward", "loss_forward", "loss_backward")
_NORM = ("norm_backward",)
#: Moments of PyTorch's own step behind the loss, and those of FSDP2 by its units.
_BEHIND = ("head_backward", "layer_backward", "embedding_backward")
_OF_UNITS = {"root": ("backward_start", *_NORM, "last_reduce"), "ends": (*_NORM, "head_reduce", "last_reduce")}


def held_rows(prefix: str, shape: tuple[Dimension, ...], size: int, source: str, meaning: str, loss: str,
              when: Any = ONE) -> tuple[Tensor, ...]:
    """Return one row for the moments of each way that a step's moments are counted."""
    def row(name: str, sites: tuple[str, ...], **on: tuple[str, ...]) -> Tensor:
        return transient(f"{prefix}{name}", "loss", shape, size, source, meaning, sites, when=when, loss=(loss,), **on)

    return (
        row("returned_logits", _OF_LOSS, peak=BY_NAME["peak"].without("torch")),
        row("held_by_caller", (*_OF_LOSS, *_BEHIND, *_NORM), peak=("torch",),
            data_parallel=BY_NAME["data_parallel"].without("fsdp")),
        row("held_while_reduced", ("last_reduce",), peak=("torch",), data_parallel=("deepspeed",)),
        *(row(f"held_by_caller_{units}", (*_OF_LOSS, *_BEHIND, *sites), peak=("torch",), data_parallel=("fsdp",),
              units=(units,))
          for units, sites in _OF_UNITS.items()),
    )
