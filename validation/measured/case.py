"""One published run: what was run, how, and what was measured of its memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardmath.allocator.settings import Settings
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

GIB = 2**30
#: Quantities of measured bytes.
PEAK, STEADY, RESERVED = "allocated peak", "allocated between steps", "reserved peak"
PROCESS = "process"
#: Trait of runs by which the formula of reserved memory is judged where their steps are not replayed.
BY_FORMULA = "reserved memory by the formula"
#: How a run ended: it trained, or it is given as out of memory.
FIT, OUT_OF_MEMORY = "ok", "oom"


@dataclass(frozen=True)
class Measured:
    """A measured number of bytes on one pipeline rank, or on the fullest rank where ``rank`` is None."""

    quantity: str
    bytes: int
    rank: int | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """One row of a table of runs, or several rows of the same run.

    ``model`` is None where shardmath has no such model, and ``refusal`` says why. ``arguments`` go to
    ``shardmath.explain`` beside model and GPU. ``seconds`` are those of one optimizer step, None where a table does
    not say them. ``group`` names rows that are judged together, ``traits`` what else a sentence may ask of the row.
    ``others`` are further readings of a row that does not state something, by name, each with the arguments that
    differ. ``allocator``: options of PyTorch's allocator in a replay. ``causes``: why a prediction is far off, where
    that is known.
    """

    id: str
    group: str
    source: str
    model: Model | None
    gpu: Gpu
    arguments: Mapping[str, Any]
    measured: tuple[Measured, ...] = ()
    seconds: float | None = None
    status: str = FIT
    refusal: str = ""
    traits: frozenset[str] = frozenset()
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    allocator: Settings = field(default_factory=Settings)
    causes: tuple[str, ...] = ()

    @property
    def layout(self) -> str:
        """The layout in words, sizes of 1 left out."""
        names = {"tensor_parallel": "TP", "context_parallel": "CP", "pipeline_parallel": "PP",
                 "virtual_pipeline": "VP", "expert_parallel": "EP", "data_parallel": "DP"}
        sizes = [f"{short} {self.arguments[name]}" for name, short in names.items()
                 if self.arguments.get(name, 1) != 1]
        return ", ".join(sizes) or "one GPU"


def varied(base: str, **changes: Any) -> Model:
    """Return a model of the catalogue with some fields changed, such as fewer layers."""
    fields = Model.named(base).model_dump() | changes
    return Model(**fields)
