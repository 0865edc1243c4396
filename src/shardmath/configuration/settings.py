"""Settings of a training run before its layout: model, cluster, batch, precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike, fspath

from shardmath.compiler.evaluators import Evaluator, fixing
from shardmath.configuration.zero import stage_switches
from shardmath.errors import InputError, nearest_names
from shardmath.generated.definitions import DEFAULTS, LIBRARIES, RECOMPUTE_MODES, RECOMPUTE_REGIONS
from shardmath.input.meant import recompute_of
from shardmath.input.parameters import MACHINE, checked, model_values
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model, load_model

GRADIENT_BYTES = {"fp32": 4, "bf16": 2}
#: Terms of what rank r keeps on a host, and of what the GPUs of a server do, which no listed stages have.
ON_HOST, OFFLOADED = "stage.host", "server.host"
#: torchtitan's recompute that keeps outputs of some operations: a choice of kernels, with the switch of full.
SELECTIVE = "selective"
#: Regions of recompute as `--recompute-modules` of Megatron-LM has them, where they are called otherwise here.
CALLED = {"core_attn": "core_attention"}


def as_model(model: Model | str | PathLike[str]) -> Model:
    """Return a model from itself, a name of the catalogue or the path of a ``config.json``."""
    return model if isinstance(model, Model) else load_model(model)


def as_gpu(gpu: Gpu | Cluster | str | PathLike[str]) -> Gpu:
    """Return a GPU from itself, its cluster or a name of the catalogue."""
    if isinstance(gpu, Cluster):
        return gpu.gpu
    return gpu if isinstance(gpu, Gpu) else Gpu.named(fspath(gpu))


def settings(
    evaluator: Evaluator,
    model: Model | None,
    gpu: Gpu | Cluster | None,
    *,
    seq_length: int,
    node_size: int | None = None,
    gradients: str | None = None,
    distributed_optimizer: bool | None = None,
    vocab_multiple: int | None = None,
    others: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Return values of the parameters that do not depend on the layout, by name.

    ``others`` are values of further parameters. Fields that are None get the default of the implementation
    (``node_size``: of the GPU). Figures of a server's host are there where something lies on it. Without a model or
    a GPU the values that these have are left out. Raises InputError for a value out of range, and for one that the
    implementation does not have.
    """
    if gradients is not None and gradients not in GRADIENT_BYTES:
        raise InputError("gradients", gradients, "must be fp32 or bf16")
    asked = {
        "gradient_bytes": None if gradients is None else GRADIENT_BYTES[gradients],
        "distributed_optimizer": distributed_optimizer,
        "vocab_multiple": vocab_multiple,
    }
    usual = {name: value for name, value in DEFAULTS.items() if name not in MACHINE}
    own = {name: value for name, value in evaluator.defaults.items() if name in usual}
    cluster = {}
    if gpu is not None:
        device, servers = as_gpu(gpu), gpu.servers if ON_HOST in evaluator.terms.TERMS else {}
        cluster = {**libraries(device), "node_size": device.domain_size, "gpu_memory": device.memory_bytes, **servers}
    if node_size is not None:
        cluster["node_size"] = node_size
    values = {**usual, **own, **({} if model is None else model_values(model)), **cluster, **(others or {})}
    values["seq_length"] = seq_length
    for name in ("seq_length", *cluster):
        checked(name, values[name])
    for name, value in asked.items():
        values[name] = evaluator.defaults[name] if value is None else checked(name, value)
        if name in evaluator.fixed and values[name] != evaluator.fixed[name]:
            raise InputError(name, values[name], f"must be {evaluator.fixed[name]} with {fixing(evaluator, name)}",
                             str(evaluator.fixed[name]))
    return values


def libraries(gpu: Gpu) -> dict[str, int]:
    """Return the library defaults of a GPU and its CUDA context by parameter name, as far as they are known."""
    context = {} if gpu.context_mib is None else {"context_bytes": gpu.context_mib * 2**20}
    return {**(LIBRARIES[gpu.architecture] if gpu.architecture else {}), **context}


def recompute_switches(mode: str) -> dict[str, int]:
    """Return the switches of a recompute mode, by parameter name.

    A mode is one of ``RECOMPUTE_MODES``, ``SELECTIVE`` or some regions with a plus sign between them. Raises
    InputError for any other.
    """
    if mode == SELECTIVE:
        return RECOMPUTE_MODES["full"]
    if mode in RECOMPUTE_MODES:
        return RECOMPUTE_MODES[mode]
    switches = dict(RECOMPUTE_MODES["none"])
    for region in _regions(mode):
        if region not in RECOMPUTE_REGIONS:
            rule = f"must be none, full, or some of {', '.join(RECOMPUTE_REGIONS)} with + between them"
            nearest = recompute_of(mode) or nearest_names(region, [*RECOMPUTE_MODES, *RECOMPUTE_REGIONS])
            raise InputError("recompute", mode, rule, nearest)
        switches[RECOMPUTE_REGIONS[region]] = 1
    return switches


def _regions(mode: str) -> list[str]:
    return [CALLED.get(region, region) for region in mode.split("+")]


#: Words for several switches, each with what a value of it means.
WORDS: Mapping[str, Callable[[str], dict[str, int]]] = {
    "recompute": recompute_switches, "zero_stage": stage_switches,
}


def recompute_mode(mode: str, asked: Mapping[str, int]) -> str:
    """Return the name of a recompute mode with the regions whose own switches were asked for by name."""
    regions = [region for region in _regions(mode) if region != "none"]
    regions += [region for region, switch in RECOMPUTE_REGIONS.items() if asked.get(switch) and region not in regions]
    return "+".join(regions) or mode
