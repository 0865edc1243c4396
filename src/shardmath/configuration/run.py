"""A run and a search as a person asks for them: frozen, each field declared once."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from shardmath.configuration.fields import Layout, Layouts, documented
from shardmath.input.asking import constructor
from shardmath.machines import Cluster
from shardmath.machines.files import any_cluster
from shardmath.machines.gpu import Gpu
from shardmath.machines.prices import CENTS, priced, refuse_both
from shardmath.models.model import Model

_MODEL = "name of the catalogue, or path of a Hugging Face config.json"
_GPU = "GPU by its name, or a cluster or its file"


@dataclass(frozen=True)
class _OnMachine:
    """A question about a model on GPUs."""

    def __post_init__(self) -> None:
        """Put a price of GPUs into their cluster. Raises InputError for one that is not legal."""
        super().__post_init__()  # type: ignore[misc]  # of ``Training``
        asked: Any = self
        refuse_both(asked.price, asked.others.get(CENTS))
        if asked.price is not None:
            object.__setattr__(self, "gpu", priced(any_cluster(asked.gpu, asked.network), asked.price))
            object.__setattr__(self, "price", None)


@dataclass(frozen=True)
class Run(_OnMachine, Layout):
    """One training run: a model in one layout on a GPU."""

    model: Model | str | PathLike[str] = field(metadata={"meaning": _MODEL})
    gpu: Gpu | Cluster | str | PathLike[str] = field(metadata={"meaning": _GPU})


@dataclass(frozen=True)
class Search(_OnMachine, Layouts):
    """Layouts of a model on a number of GPUs."""

    model: Model | str | PathLike[str] = field(metadata={"meaning": _MODEL})
    gpu: Gpu | Cluster | str | PathLike[str] = field(metadata={"meaning": _GPU})
    num_gpus: int
    global_batch_size: int = field(kw_only=True)


run_of = constructor(Run, documented(Run))
search_of = constructor(Search, documented(Search))
