"""Where every input of the evaluator comes from: a column, a value for all rows, the model, the GPU or a default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from types import ModuleType
from typing import Any

import numpy as np

from shardmath.account.time import as_cluster, machine_values
from shardmath.commands.evaluate.columns import RECOMPUTE, SWITCHES, refuse_value
from shardmath.compiler.evaluators import Evaluator
from shardmath.configuration.choosing import chunks_of, evaluator_for, following
from shardmath.configuration.defaults import default_implementation, default_seq_length
from shardmath.configuration.fields import LAYOUT
from shardmath.configuration.job import filling_batch, refuse_what_changes_nothing, without_effect
from shardmath.configuration.risk import with_parts
from shardmath.configuration.settings import as_model, recompute_mode, recompute_switches, settings
from shardmath.errors import ABSENT, InputError
from shardmath.generated.definitions import IMPLEMENTATIONS, model_ranks
from shardmath.input.parameters import OTHERS, checked, limits
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

#: Defaults of ``explain``.
_USUAL = {**LAYOUT, "pipeline_rank": 0}
#: Parameters for which ``settings`` has an argument of its own.
_SETTINGS = ("node_size", "distributed_optimizer", "vocab_multiple")


@dataclass(frozen=True)
class Inputs:
    """The evaluator for a table, and all values that are the same for every row.

    ``asked`` names what a person gave, as a column or a value; ``only`` has the one legal value of parameters that
    change nothing.
    """

    evaluator: Evaluator
    values: Mapping[str, int]
    asked: frozenset[str]
    only: Mapping[str, int]

    def completed(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return every input by name, numbers and ``columns``, with what follows from others as ``explain`` has it.

        GPUs that the ranks do not divide leave a data-parallel size rounded down, which the rules then refuse.
        """
        complete = {**self.values, **columns}
        if not self.asked >= {"num_gpus", "data_parallel"}:
            ranks = model_ranks(**complete)
            if "num_gpus" in self.asked:
                complete["data_parallel"] = np.maximum(complete["num_gpus"] // ranks, 1)
            else:
                complete.setdefault("data_parallel", 1)
                complete["num_gpus"] = ranks * complete["data_parallel"]
        followers = following(self.evaluator, dict.fromkeys(self.asked, 0))
        complete |= {name: complete[leader] for name, leader in followers.items()}
        if "global_batch_size" not in self.asked:
            complete["global_batch_size"] = filling_batch(complete, self.evaluator.choices["schedule"])
        if "sequence_parallel" not in self.asked:
            by_default = self.evaluator.defaults["sequence_parallel"]
            complete["sequence_parallel"] = by_default * (complete["tensor_parallel"] > 1)
        return complete

    def kernel(self, terms: Sequence[str], columns: Sequence[str]) -> ModuleType:
        """Return the compiled evaluator of ``terms`` for a table with ``columns``.

        Raises InputError for an unknown term, and for an input of which nothing gives a value.
        """
        sample = self.completed({name: np.ones(1) for name in columns})
        kernel = self.evaluator.kernel_for(terms, [name for name, value in sample.items() if np.ndim(value)])
        for name in (*kernel.SCALARS, *kernel.COLUMNS):
            if name not in sample:
                raise InputError(name, ABSENT, "must be given: as a column, as a value, or with a model or a GPU")
        return kernel


def inputs(
    columns: Sequence[str],
    model: Model | str | PathLike[str] | None,
    gpu: Gpu | Cluster | str | PathLike[str] | None,
    implementation: str | None,
    kernels: Mapping[str, str] | None,
    values: Mapping[str, Any],
    network: str | None = None,
    staged: bool = False,
) -> Inputs:
    """Check ``values`` and choose the evaluator; ``columns`` are the parameters that the table has.

    A column chooses formulas as a value does: one of virtual pipeline sizes asks for the interleaved schedule.
    ``staged`` asks for those of rows in a pipeline.
    Raises InputError for a value that is not legal and for one of a parameter that is a column too.
    """
    chosen = None if model is None else as_model(model)
    if network is not None and gpu is None:
        raise InputError("network", network, "must be given with a GPU or a cluster")
    cluster = None if gpu is None else as_cluster(gpu, network)
    implementation = default_implementation(chosen) if implementation is None else implementation
    mode = values.get(RECOMPUTE, "none")
    if not isinstance(mode, str):
        raise InputError(RECOMPUTE, mode, "must be the name of a mode")
    asked = _checked(with_parts({name: value for name, value in values.items() if name != RECOMPUTE}), columns)
    if RECOMPUTE in values and {RECOMPUTE, *SWITCHES} & set(columns):
        raise InputError(RECOMPUTE, mode, "must not be given both as a column and as a value")
    schedule = "schedule" in (kernels or {})
    if schedule and "virtual_pipeline" not in {*asked, *columns} and implementation in IMPLEMENTATIONS:
        asked["virtual_pipeline"] = chunks_of(implementation, kernels, None)
    mode = recompute_mode(mode, asked)
    some = {name: min(2, limits(name)[1]) for name in columns if name in OTHERS}
    evaluator = evaluator_for(
        implementation, kernels, chosen, {**some, **asked}, recompute=(mode,),
        staged=staged or schedule or asked.get("pipeline_parallel", 1) > 1,
    )
    values_for_all = settings(
        evaluator, chosen, cluster,
        seq_length=asked.get("seq_length", default_seq_length(chosen)),
        **{name: asked.get(name) for name in _SETTINGS},  # type: ignore[arg-type]
        others={name: value for name, value in asked.items() if name not in _SETTINGS},
    )
    speeds = {} if cluster is None else _speeds(evaluator, cluster, asked.get("num_gpus"))
    values_for_all = {**speeds, **_USUAL, **values_for_all, **recompute_switches(mode), **asked}
    if chosen is not None:
        refuse_what_changes_nothing(evaluator, chosen, values_for_all)
    return Inputs(evaluator, values_for_all, frozenset({*asked, *columns}), without_effect(evaluator))


def programs(
    columns: Sequence[str],
    model: Model | str | PathLike[str] | None,
    gpu: Gpu | Cluster | str | PathLike[str] | None,
    implementation: str | None,
    kernels: Mapping[str, str] | None,
    values: Mapping[str, Any],
    network: str | None = None,
) -> tuple[Inputs, ...]:
    """Return the ``inputs`` of all rows; two where a column of pipeline sizes needs other formulas for some rows.

    The second are those of rows with a pipeline. Where no formulas count what was asked for in a pipeline, the first
    have a rule that refuses such rows.
    """
    alone = inputs(columns, model, gpu, implementation, kernels, values, network)
    if "pipeline_parallel" not in columns:
        return (alone,)
    try:
        in_pipeline = inputs(columns, model, gpu, implementation, kernels, values, network, staged=True)
    except InputError:
        return (alone,)
    return (alone,) if in_pipeline.evaluator.choices == alone.evaluator.choices else (alone, in_pipeline)


def _speeds(evaluator: Evaluator, cluster: Cluster, num_gpus: int | None) -> dict[str, int]:
    """Return the machine's parameters; none where a figure is not known, which matters only if time is asked for."""
    try:
        return machine_values(evaluator, cluster, num_gpus)
    except InputError:
        return {}


def _checked(values: Mapping[str, Any], columns: Sequence[str]) -> dict[str, int]:
    checked_values = {}
    for name, value in values.items():
        refuse_value(name, value, columns)
        checked_values[name] = checked(name, value)
    return checked_values
