"""Questions of a space to one implementation, and the evaluators of its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardmath.account.time import as_cluster, on_nodes
from shardmath.compiler.evaluators import Evaluator
from shardmath.configuration.choosing import chunks_of, evaluator_for, with_schedule
from shardmath.configuration.risk import RISK, with_parts
from shardmath.configuration.settings import GRADIENT_BYTES, as_gpu, as_model, recompute_switches
from shardmath.configuration.zero import staged
from shardmath.errors import ABSENT, InputError
from shardmath.input.parameters import OTHERS
from shardmath.machines import Cluster
from shardmath.machines.files import any_cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.spaces.candidates import DivisorsOf, listed
from shardmath.search.spaces.declared import Space
from shardmath.search.spaces.symbols import SETTERS, SHAPE, set_by

#: Stand-in for a symbol with unknown values, where a value above 1 asks for other formulas.
_SEVERAL = 2


@dataclass(frozen=True)
class Asked:
    """A space as one implementation is asked for it.

    ``fixed`` has the values of symbols, ``others`` those of them that few people set, ``switches`` those of recompute;
    ``gpu`` is the first one if there is an axis of them.
    """

    space: Space
    implementation: str
    kernels: Mapping[str, str] | None
    distributed_optimizer: bool | None
    others: Mapping[str, int]
    fixed: Mapping[str, int]
    switches: Mapping[str, int]
    gpu: Gpu
    cluster: Cluster
    gradients: str | None
    virtual_pipeline: int
    declared: frozenset[str]

    @classmethod
    def of(cls, space: Space, implementation: str, options: Mapping[str, str]) -> Asked:
        """Ask with some ``options`` of kernels where the space has several.

        Raises InputError for choices that the implementation does not have, and for missing ones.
        """
        fixed = _fixed_symbols(space)
        sharded = bool(fixed["distributed_optimizer"]) if "distributed_optimizer" in fixed else None
        others = {name: value for name, value in fixed.items() if name in OTHERS}
        device = gpus(space, declared_by(space))[0]
        cluster = _cluster(space, device, fixed)
        chosen = {name: option for name, option in {**space.kernels, **options}.items() if isinstance(option, str)}
        on_cluster = cluster.kernels(implementation, chosen, {
            name: space.shown(name) for name in (*space.axes, *space.fixed, *space.derived)})
        if cluster.num_gpus and not declared_by(space) & {"num_gpus", "data_parallel"}:
            fixed["num_gpus"] = cluster.num_gpus
        kernels, sharded, others_staged = staged(space.zero_stage, implementation, on_cluster, sharded, others)
        kernels = with_schedule(implementation, kernels, space.schedule)
        chunks = 1 if space.schedule is None else chunks_of(implementation, kernels, None)
        mode = space.fixed.get("recompute", "none")
        if not isinstance(mode, str):
            raise InputError("recompute", mode, "must be the name of a mode")
        return cls(
            space, implementation, kernels, sharded, others_staged, fixed, recompute_switches(mode),
            device, cluster, _gradients(space, fixed), fixed.get("virtual_pipeline", chunks),
            declared_by(space),
        )


def declared_by(space: Space) -> frozenset[str]:
    """Return the symbols that a space says something of."""
    return frozenset(
        symbol for names in (space.axes, space.fixed, space.derived) for name in names for symbol in set_by(name))


def families(asked: Asked) -> list[tuple[Evaluator, list[Model]]]:
    """Return the evaluators that the models of a space need, each with its models."""
    space, families_so_far = asked.space, list[tuple[Evaluator, list[Model]]]()
    values = dict(asked.others)
    # Where several sizes of expert parallelism are tried, kernels stay those that have a step time.
    values |= {name: _largest(space.axes[name]) for name in space.axes if name in OTHERS and name != "expert_parallel"}
    values |= {name: _SEVERAL for name in space.derived if name in OTHERS}
    values.setdefault("virtual_pipeline", asked.virtual_pipeline)
    pipelines = _values(space.axes["pipeline_parallel"]) if "pipeline_parallel" in space.axes else (
        asked.fixed.get("pipeline_parallel", 1),)
    for model in models(space):
        evaluator = evaluator_for(
            asked.implementation, asked.kernels, _shaped(asked, model), values, recompute=modes(space),
            staged=space.schedule is not None or values["virtual_pipeline"] > 1 or 1 not in pipelines,
        )
        same = next((others for known, others in families_so_far if known == evaluator), None)
        if same is None:
            families_so_far.append((evaluator, [model]))
        else:
            same.append(model)
    return families_so_far


def models(space: Space) -> list[Model]:
    """Return the models of a space, in order. Raises InputError if there is none, or one twice."""
    names = space.axes.get("model", () if space.model is None else (space.model,))
    if not names:
        raise InputError("model", ABSENT, "must be given: a name of `shardmath models`, or the path of a config.json")
    return _each("model", names, as_model)


def gpus(space: Space, declared: frozenset[str]) -> list[Gpu]:
    """Return the GPUs of a space; a nameless one if only memory is declared. Raises InputError without either."""
    single = space.gpu if space.cluster is None else any_cluster(space.cluster).gpu
    names = space.axes.get("gpu", () if single is None else (single,))
    if not names and "gpu_memory" not in declared:
        rule = "must be given: a name of `shardmath gpus`, or declare gpu_memory (bytes) or gpu_memory_gib"
        raise InputError("gpu", ABSENT, rule)
    return _each("gpu", names, as_gpu) if names else [Gpu.custom(1)]


def _cluster(space: Space, gpu: Gpu, fixed: Mapping[str, int]) -> Cluster:
    """Return the machine of a space: the declared one, or usual servers with its first GPU."""
    cluster = as_cluster(gpu, space.network) if space.cluster is None else any_cluster(space.cluster)
    return on_nodes(cluster, fixed.get("node_size"))


def modes(space: Space) -> tuple[str, ...]:
    """Return the recompute modes that a space names. Raises InputError for anything but a list of texts."""
    named = space.axes.get("recompute", (space.fixed["recompute"],) if "recompute" in space.fixed else ())
    if not isinstance(named, tuple) or not all(isinstance(mode, str) for mode in named):
        raise InputError("recompute", named, "must be a list of modes")
    return tuple(str(mode) for mode in named)


def _each(field: str, names: object, make: Any) -> list[Any]:
    if not isinstance(names, tuple):
        raise InputError(field, names, "must be a list of names")
    distinct_values: list[Any] = []
    for name in names:
        item = make(name)
        if item in distinct_values:
            raise InputError(field, name, f"must not be there twice: it is {item.name}")
        distinct_values.append(item)
    return distinct_values


def _fixed_symbols(space: Space) -> dict[str, int]:
    declared = with_parts({**space.fixed, RISK: space.risk})
    fixed = {name: int(value) for name, value in declared.items() if name not in SETTERS}
    if "gpu_memory_gib" in space.fixed:
        fixed["gpu_memory"] = Gpu.custom(space.fixed["gpu_memory_gib"]).memory_bytes  # type: ignore[arg-type]
    return fixed


def _gradients(space: Space, fixed: Mapping[str, int]) -> str | None:
    if "gradient_bytes" not in fixed:
        return space.gradients
    if space.gradients is not None:
        raise InputError("gradients", space.gradients, "must not be given: fixed.gradient_bytes sets it")
    names = {value: name for name, value in GRADIENT_BYTES.items()}
    if fixed["gradient_bytes"] not in names:
        raise InputError("gradient_bytes", fixed["gradient_bytes"], "must be 2 or 4", "2 or 4")
    return names[fixed["gradient_bytes"]]


def _values(candidates: object) -> Sequence[int]:
    """Return candidates as far as they are known before the model is; ``_SEVERAL`` stands for what is not."""
    if isinstance(candidates, DivisorsOf):
        return (candidates.at_least, max(candidates.at_least, min(_SEVERAL, candidates.at_most or _SEVERAL)))
    return listed("axes", candidates)


def _largest(candidates: object) -> int:
    return max(_values(candidates))


def _shaped(asked: Asked, model: Model) -> Model:
    """Return the model with the shape that is declared otherwise, as far as it decides which formulas are needed.

    Raises InputError for an axis that would need several evaluators, and for a formula that may.
    """
    space = asked.space
    shaped = model.model_copy(update={name: value for name, value in asked.fixed.items() if name in SHAPE})
    shaped = shaped.model_copy(update={name: _values(space.axes[name])[0] for name in space.axes if name in SHAPE})
    kind = _kind(shaped)
    for name in space.axes:
        for value in _values(space.axes[name]) if name in SHAPE else ():
            if _kind(shaped.model_copy(update={name: value})) != kind:
                first = _values(space.axes[name])[0]
                raise InputError(name, value, f"must need the same formulas as {first}: declare one space for each")
    for name in space.derived:
        if name in SHAPE and len({str(_kind(shaped.model_copy(update={name: value}))) for value in (0, 1)}) > 1:
            raise InputError(name, space.derived[name], "must not be derived: it decides which formulas are needed")
    return shaped


def _kind(model: Model) -> tuple[dict[str, str], str]:
    return model.architecture, model.biases
