"""The change from one layout to the next: what ranks receive, and how long it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from shardmath.account.configured import Configuration
from shardmath.commands.phases.answers import LayoutChange
from shardmath.compiler.evaluators import terms_at
from shardmath.configuration.stages import parsed
from shardmath.errors import InputError

if TYPE_CHECKING:
    from shardmath.symbolic.parallel.resharding import Mesh, Tensors

#: A layout, checked, and the options that made it.
Arranged = tuple[Configuration, Mapping[str, Any]]

#: Options of axes with which parameters lie on ranks as the count of a change assumes.
_COUNTED = {
    "layers": ("dense",), "stages": ("even", "listed"), "schedule": ("1f1b", "interleaved"), "adapters": ("none",),
    "data_parallel": ("ddp",),
}
#: Parameters that must have this value there.
_PLAIN = {"sharded_weights": 0, "data_parallel_replicas": 1}


def change(before: str, old: Arranged, new: Arranged, storage: tuple[int | None, int | None]) -> LayoutChange:
    """Count the change to the layout of the phase ``before``. Raises InputError where it is not counted."""
    from shardmath.symbolic.parallel.resharding import loaded, received, saved
    from shardmath.symbolic.timing import phases as formulas

    meshes = [_mesh(*arranged) for arranged in (old, new)]
    last, _ = new
    tensors = _tensors(last)
    for (configuration, _), mesh in zip((old, new), meshes, strict=True):
        _refuse_other_tensors(configuration, tensors, mesh)
    weight, state = _bytes_of_each(last)
    if _bytes_of_each(old[0]) != (weight, state):
        optimizer = last.job.evaluator.choices["optimizer"]
        raise InputError("optimizer", optimizer, "must keep the same states in all phases")
    each = list(received(tensors, *meshes))
    most = max(weight * rank.weights + state * rank.states for rank in each)
    read, count = loaded(tensors, meshes[1]), saved(tensors)
    written_bytes, read_bytes = (weight + state) * count, weight * read.weights + state * read.states
    machine = last.machine_values()
    network = formulas.value(formulas.OVER_NETWORK, {
        formulas.most: most, formulas.Wx: machine["network_bandwidth"], formulas.ex: machine["network_per_mille"],
        formulas.kx: machine["network_contention_per_mille"], formulas.dom: machine["nvlink_domain"],
        formulas.N: last.job.values["num_gpus"],
    })
    write_rate, read_rate = storage
    checkpoint = None
    if write_rate is not None and read_rate is not None:
        checkpoint = formulas.value(formulas.BY_CHECKPOINT, {
            formulas.written: written_bytes, formulas.write_rate: write_rate,
            formulas.read: read_bytes, formulas.read_rate: read_rate,
        })
    return LayoutChange(
        before, most, weight * sum(rank.weights for rank in each), state * sum(rank.states for rank in each), network,
        written_bytes, read_bytes, checkpoint, network if checkpoint is None or not most else checkpoint,
    )


def _mesh(layout: Configuration, arguments: Mapping[str, Any]) -> Mesh:
    """Return the degrees of a layout. Raises InputError for options whose change is not counted."""
    from shardmath.symbolic.parallel.resharding import Mesh
    from shardmath.symbolic.systems import SYSTEMS
    from shardmath.symbolic.systems.system import Aspect

    values, choices = layout.job.values, layout.job.evaluator.choices
    moving = [system for system in SYSTEMS if not {Aspect.RANKS, Aspect.STATES}.isdisjoint(system.changes)]
    for axis, counted in {**_COUNTED, **{system.axis.name: (system.absent,) for system in moving}}.items():
        if choices[axis] not in counted:
            raise InputError(axis, choices[axis], "must be one whose change of layout is counted", " or ".join(counted))
    for name, only in _PLAIN.items():
        if values.get(name, only) != only:
            rule = f"must be {only} where the layout changes: other changes are not counted yet"
            raise InputError(name, values[name], rule, str(only))
    numbers = terms_at(layout.job.evaluator.terms, layout.job.on_rank(0))
    return Mesh(
        values["tensor_parallel"], values["context_parallel"], values["data_parallel"], values["pipeline_parallel"],
        _layers(layout, arguments.get("pipeline_layout")),
        int(numbers["embedding.parameters"]) // values["hidden_size"],
        bool(values["distributed_optimizer"]),
    )


def _layers(layout: Configuration, listed: str | Sequence[int] | None) -> tuple[int, ...]:
    """Return the layers of every chunk, in the order of the model."""
    if listed is not None:
        return parsed(listed) if isinstance(listed, str) else tuple(listed)
    stages = layout.job.values["pipeline_parallel"] * layout.job.values["virtual_pipeline"]
    return (layout.job.values["num_layers"] // stages,) * stages


def _tensors(layout: Configuration) -> Tensors:
    """Return the parameters of the model: those of a layer that tensor parallelism divides are halved by two ranks."""
    from shardmath.symbolic.parallel.resharding import Tensors

    values = layout.job.on_rank(0)
    alone, halved = (
        int(terms_at(layout.job.evaluator.terms, {**values, "tensor_parallel": size})["layer.parameters"])
        for size in (1, 2)
    )
    return Tensors.of_layers(values["vocab_size"], values["hidden_size"], values["num_layers"], alone, halved,
                             tied=bool(values["tied_embeddings"]))


def _refuse_other_tensors(layout: Configuration, tensors: Tensors, mesh: Mesh) -> None:
    """Refuse a model with parameters that the count lacks, such as learned positions."""
    from shardmath.symbolic.parallel.resharding import elements, weights

    padding = mesh.tensor * mesh.rows - tensors.vocabulary
    for stage in range(mesh.pipeline):
        numbers = terms_at(layout.job.evaluator.terms, layout.job.on_rank(stage))
        ends = (stage == 0) + (stage == mesh.pipeline - 1 and (not tensors.tied or stage > 0))
        counted = sum(elements(weights(tensors, mesh, rank, stage)) for rank in range(mesh.tensor))
        if counted + ends * padding * tensors.hidden != mesh.tensor * numbers["stage.all_parameters"]:
            rule = "must have parameters in layers, embedding, final norm and head alone where the layout changes"
            raise InputError("model", layout.job.model.name, rule)


def _bytes_of_each(layout: Configuration) -> tuple[int, int]:
    """Return the bytes of an element's weight and of its optimizer states."""
    numbers = terms_at(layout.job.evaluator.terms, layout.job.on_rank(0))
    weight = Fraction(numbers["stage.weight"]) / numbers["stage.buffer_elements"]
    state = Fraction(numbers["stage.optimizer"]) / numbers["stage.shard_elements"]
    if weight.denominator != 1 or state.denominator != 1:
        rule = "must have whole bytes for every element where the layout changes"
        raise InputError("optimizer", layout.job.evaluator.choices["optimizer"], rule, "adamw")
    return int(weight), int(state)
