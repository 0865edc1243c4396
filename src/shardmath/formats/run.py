"""One training run, whatever format described it: a model, the arguments of ``explain``, and what was read how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardmath.models import Model

if TYPE_CHECKING:
    from shardmath.accounting import Explanation
    from shardmath.gpus import Gpu

#: Sizes that follow from one another: with another of them the file's is no longer asked for.
_GPUS = ("data_parallel", "num_gpus")


@dataclass(frozen=True)
class Run:
    """A run that a file describes.

    ``arguments`` go to ``shardmath.explain`` beside model and GPU. ``understood`` names the flags or keys that they
    follow from, ``without_effect`` those that change no memory, ``unknown`` those that are not known here and may.
    ``warnings`` are sentences about what is not counted or not as the file says.
    """

    format: str
    source: str
    model: Model
    arguments: Mapping[str, Any]
    understood: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with ``changes``, which win; choices of kernels are merged."""
        kept = {name: value for name, value in self.arguments.items()
                if not (name in _GPUS and any(other in changes for other in _GPUS))}
        kernels = {**kept.pop("kernels", {}), **(changes.get("kernels") or {})}
        return {**kept, **changes, "kernels": kernels}

    def explain(self, gpu: Gpu | str, **changes: Any) -> Explanation:
        """Account for the run on a GPU as ``shardmath.explain`` does; ``changes`` are arguments that win over it."""
        from shardmath.accounting import explain

        return explain(self.model, gpu, **self.changed(changes))
