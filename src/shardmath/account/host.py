"""Memory of the servers that GPUs share: an offload that a host cannot hold is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from shardmath.account.configured import Configuration
from shardmath.errors import InputError
from shardmath.machines.gpu import GIB

Numbers = Mapping[str, int | Fraction]
#: The parameter that says how much goes to the host, by the term of what it makes.
_AMOUNTS = {
    "stage.host_optimizer": "optimizer_offload_percent",
    "stage.host_activations": "cpu_offloading_num_layers",
}
#: The axis that chooses what else goes there, by the same, and its option that leaves it on the GPU.
_CHOICES = {
    "stage.host_parameters": ("local_updates", "diloco"),
    "stage.host_zero": ("zero_offload", "none"),
}


def refuse_full_host(configuration: Configuration, ranks: Sequence[Numbers]) -> None:
    """Raise InputError where the GPUs of a server offload more than its host holds.

    ``ranks`` has the terms of each pipeline rank. Stages are taken to follow each other on the GPUs of the servers.
    Nothing is refused where the host's memory is not known.
    """
    cluster, values = configuration.cluster, configuration.job.values
    memory = cluster.host_memory_bytes
    if memory is None or "stage.host" not in ranks[0]:
        return
    offloaded, rank = max(
        (size, rank) for size, rank in _servers(ranks, values["num_gpus"], cluster.gpus_per_node)
    )
    if offloaded <= memory:
        return
    parts = {name: size for name, size in ranks[rank].items() if name.startswith("stage.host_")}
    largest = max(parts, key=parts.__getitem__)
    rule = (f"must keep what the GPUs of a server offload, {float(offloaded / GIB):.0f} GiB, within the"
            f" {memory / GIB:.0f} GiB of its host")
    if largest not in _AMOUNTS:
        axis, without = _CHOICES[largest]
        raise InputError(axis, configuration.job.evaluator.choices[axis], rule, without)
    field = _AMOUNTS[largest]
    raise InputError(field, values[field], rule, str(int(values[field] * memory / offloaded)))


def _servers(ranks: Sequence[Numbers], gpus: int, per_server: int) -> list[tuple[Fraction, int]]:
    """Bytes that the GPUs of each server offload, and the stage of its first GPU."""
    of_stage = gpus // len(ranks)
    sizes = [Fraction(numbers["stage.host"]) for numbers in ranks]
    servers = []
    for first in range(0, gpus, per_server):
        stages = range(first // of_stage, (min(first + per_server, gpus) - 1) // of_stage + 1)
        shared = (
            sizes[stage] * (min(first + per_server, (stage + 1) * of_stage, gpus) - max(first, stage * of_stage))
            for stage in stages
        )
        servers.append((sum(shared, Fraction(0)), stages[0]))
    return servers
