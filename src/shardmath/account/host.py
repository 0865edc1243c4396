"""Memory of the servers that GPUs share: an offload that a host cannot hold is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil

from shardmath.configuration.job import Job
from shardmath.configuration.settings import ON_HOST
from shardmath.errors import InputError
from shardmath.generated.definitions import HOSTS
from shardmath.machines.gpu import GIB

Numbers = Mapping[str, int | Fraction]


def fullest_host(job: Job, ranks: Sequence[Numbers]) -> int:
    """Return the bytes on the host of the server whose GPUs offload most; 0 where nothing is offloaded.

    ``ranks`` has the terms of each pipeline rank. Stages are taken to follow each other on the GPUs of the servers.
    Raises InputError where they are more than a host holds, as far as its memory is known.
    """
    if ON_HOST not in ranks[0]:
        return 0
    memory = job.values["host_memory"]
    offloaded, rank = max(_servers(ranks, job.values["num_gpus"], job.values["server_gpus"]))
    if memory and offloaded > memory:
        raise full_host(job.evaluator.choices, job.values, ranks[rank], offloaded, memory)
    return ceil(offloaded)


def hosts_hold(values: Mapping[str, int], ranks: Sequence[Numbers]) -> bool:
    """Tell whether the host of each server holds what its GPUs offload, as far as its memory is known."""
    if ON_HOST not in ranks[0] or not values["host_memory"]:
        return True
    return max(_servers(ranks, values["num_gpus"], values["server_gpus"]))[0] <= values["host_memory"]


def full_host(
    choices: Mapping[str, str], values: Mapping[str, int], numbers: Mapping[str, int | float | Fraction],
    offloaded: float | Fraction, memory: int,
) -> InputError:
    """Return the refusal of what a server ``offloaded``, beyond the bytes of its host's ``memory``.

    ``numbers`` are the terms of one of its ranks. Blamed is the system that offloads most.
    """
    start = f"{ON_HOST}_"
    parts = {name.removeprefix(start): Fraction(size) for name, size in numbers.items() if name.startswith(start)}
    axis = max(parts, key=parts.__getitem__)
    rule = (f"must keep what the GPUs of a server offload, {float(offloaded / GIB):.0f} GiB, within the"
            f" {memory / GIB:.0f} GiB of its host")
    field, lighter = HOSTS[axis][choices[axis]]
    if not field:
        return InputError(axis, choices[axis], rule, lighter)
    own = parts[axis] / sum(parts.values()) * Fraction(offloaded)
    return InputError(field, values[field], rule, str(max(0, int(values[field] * (own + memory - offloaded) / own))))


def _servers(ranks: Sequence[Numbers], gpus: int, per_server: int) -> list[tuple[Fraction, int]]:
    """Return bytes that the GPUs of each server offload, and the stage of its first GPU."""
    of_stage = gpus // len(ranks)
    sizes = [Fraction(numbers[ON_HOST]) for numbers in ranks]
    servers = []
    for first in range(0, gpus, per_server):
        stages = range(first // of_stage, (min(first + per_server, gpus) - 1) // of_stage + 1)
        shared = (
            sizes[stage] * (min(first + per_server, (stage + 1) * of_stage, gpus) - max(first, stage * of_stage))
            for stage in stages
        )
        servers.append((sum(shared, Fraction(0)), stages[0]))
    return servers
