"""The figures of machines and servers in a space: those that hold everywhere, and those that move with an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from shardmath.account.time import as_cluster, machine_values, on_nodes
from shardmath.compiler.evaluators import Evaluator
from shardmath.configuration.settings import OFFLOADED
from shardmath.errors import InputError
from shardmath.generated.definitions import PARAMETERS
from shardmath.machines import Cluster
from shardmath.search.spaces.asking import Asked, gpus
from shardmath.search.spaces.declared import Axis

#: Axes that figures of the machine move with.
_MOVING = ("gpu", "node_size")


def with_machine(
    asked: Asked, evaluator: Evaluator, axes: Sequence[Axis],
) -> tuple[dict[str, int], tuple[Axis, ...]]:
    """Return the figures of time that are the same everywhere, and the axes with those that move with them.

    Figures that a space declares itself win. Raises InputError for a figure that is not known, with its GPU.
    """
    machine = [name for name in evaluator.times.INPUTS if PARAMETERS[name][4] == "machine"]
    return _with(asked, axes, machine, lambda cluster: _figures(asked, evaluator, axes, cluster))


def with_servers(
    asked: Asked, evaluator: Evaluator, axes: Sequence[Axis],
) -> tuple[dict[str, int], tuple[Axis, ...]]:
    """Return the same for figures of the servers' hosts; none where nothing lies on them."""
    if OFFLOADED not in evaluator.terms.TERMS:
        return {}, tuple(axes)
    return _with(asked, axes, asked.gpu.servers, lambda cluster: cluster.servers)


def _with(
    asked: Asked, axes: Sequence[Axis], names: Iterable[str], figures: Callable[[Cluster], Mapping[str, int]],
) -> tuple[dict[str, int], tuple[Axis, ...]]:
    wanted = [name for name in names if name not in asked.declared]
    if not wanted:
        return {}, tuple(axes)
    moving = [axis for axis in axes if axis.name in _MOVING]
    if "node_size" in asked.space.derived:
        raise InputError("derived.node_size", asked.space.derived["node_size"], _depends("derived"), "a fixed value")
    if len(moving) > 1:
        raise InputError("axes.node_size", list(moving[1].labels), _depends("an axis beside gpu"), "a fixed value")
    if not moving:
        usual = figures(asked.cluster)
        return {name: usual[name] for name in wanted}, tuple(axes)
    every = [figures(cluster) for cluster in _CLUSTERS[moving[0].name](asked, moving[0])]
    by_name = {name: tuple(own[name] for own in every) for name in wanted}
    fixed = {name: values[0] for name, values in by_name.items() if len(set(values)) == 1}
    moved = {name: values for name, values in by_name.items() if name not in fixed}
    own = Axis(moving[0].name, moving[0].labels, {**moving[0].values, **moved})
    return fixed, tuple(own if axis is moving[0] else axis for axis in axes)


def _depends(declared: str) -> str:
    why = "bandwidths depend on it, and who shares a host"
    return f"must not be {declared} where step time is asked for, or something is offloaded: {why}"


def _of_gpus(asked: Asked, _: Axis) -> list[Cluster]:
    """Return one cluster for every GPU of the axis, with servers as large as declared."""
    return [on_nodes(as_cluster(gpu, asked.space.network), asked.fixed.get("node_size"))
            for gpu in gpus(asked.space, frozenset())]


def _of_sizes(asked: Asked, axis: Axis) -> list[Cluster]:
    """Return one cluster for every size of its servers."""
    return [on_nodes(asked.cluster, size) for size in axis.values["node_size"]]


_CLUSTERS: Mapping[str, Callable[[Asked, Axis], list[Cluster]]] = {"gpu": _of_gpus, "node_size": _of_sizes}


def _figures(asked: Asked, evaluator: Evaluator, axes: Sequence[Axis], cluster: Cluster) -> dict[str, int]:
    """Return all figures of a cluster with as many GPUs as the space has at most."""
    numbers = next((axis.values["num_gpus"] for axis in axes if "num_gpus" in axis.values), ())
    most = max(numbers, default=asked.fixed.get("num_gpus"))
    try:
        return machine_values(evaluator, cluster, most)
    except InputError as error:
        if cluster.gpu.name in (error.value, *error.rule.split()):
            raise
        raise InputError(error.field, error.value, f"{error.rule}, for {cluster.gpu.name}", error.nearest) from None
