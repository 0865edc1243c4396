"""One training run, whatever format described it: a model, the arguments of ``explain``, and what was read how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardmath.account.accounting import explain
from shardmath.models.model import Model

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation
    from shardmath.machines import Cluster, Gpu

#: Sizes that follow from one another: with another of them the file's is no longer asked for.
_GPUS = ("data_parallel", "num_gpus")


@dataclass(frozen=True)
class Run:
    """A run that a file describes.

    ``arguments`` go to ``shardmath.explain`` beside model and GPU. ``understood`` names the flags or keys that they
    follow from, ``without_effect`` those that change no memory, ``unknown`` those that are not known here and may.
    ``warnings`` are sentences about what is not counted yet or not as the file says. ``replica_batch`` are the
    sequences of one data-parallel rank and step, for a file that leaves the batch to the number of GPUs.
    """

    format: str
    source: str
    model: Model
    arguments: Mapping[str, Any]
    understood: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    replica_batch: int | None = None

    def changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with ``changes``, which win; choices of kernels are merged."""
        kept = {name: value for name, value in self.arguments.items()
                if not (name in _GPUS and any(other in changes for other in _GPUS))}
        kernels = {**kept.pop("kernels", {}), **(changes.get("kernels") or {})}
        arguments = {**kept, **changes, "kernels": kernels}
        if self.replica_batch is not None and arguments.get("global_batch_size") is None:
            arguments["global_batch_size"] = self.replica_batch * _replicas(arguments)
        return arguments

    def explain(self, gpu: Gpu | Cluster | str, **changes: Any) -> Explanation:
        """Account for the run on a GPU as ``shardmath.explain`` does; ``changes`` are arguments that win over it."""
        return explain(self.model, gpu, **self.changed(changes))


def title(explanation: Explanation) -> str:
    """Return the comment at the head of a file that is written; one line, whatever the model is called."""
    name = "".join(sign if sign.isprintable() else "?" for sign in explanation.model.name)
    return f"# {name} on {explanation.inputs['num_gpus']} GPUs, as shardmath accounts for it"


#: Where a line of a written file is a placeholder.
REPLACE = "REPLACE"


def notes(explanation: Explanation) -> tuple[str, ...]:
    """Return comments on what a written file does not say of the model."""
    note = "".join(sign if sign.isprintable() else "?" for sign in explanation.model.note)
    return (f"# Not in this file: {note}.",) if note else ()


def _replicas(arguments: Mapping[str, Any]) -> int:
    """Data-parallel ranks of a run, one where nothing says how many."""
    if arguments.get("data_parallel") is not None:
        return int(arguments["data_parallel"])
    ranks = 1
    for name in ("tensor_parallel", "context_parallel", "pipeline_parallel"):
        ranks *= arguments.get(name, 1)
    return max(1, (arguments.get("num_gpus") or ranks) // max(1, ranks))
