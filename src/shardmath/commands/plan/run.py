"""Plan a training on several kinds and numbers of GPUs: the fastest layout of each, and what the training takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from os import PathLike
from typing import Any
from warnings import warn

from shardmath.account.accounting import Explanation, explain
from shardmath.account.time import as_cluster
from shardmath.commands.plan.answers import Offer, Plan
from shardmath.commands.plan.asked import (
    batch_of,
    electricity_of,
    failures_of,
    phases_of,
)
from shardmath.commands.plan.choices import chosen, gains, optima
from shardmath.commands.plan.offered import Asked, offer_of
from shardmath.commands.scale import Point, ProgressOf, scale
from shardmath.configuration.defaults import OVERLAPS, default_implementation, default_seq_length
from shardmath.configuration.risk import risk_of, with_parts
from shardmath.configuration.settings import as_model
from shardmath.errors import ABSENT, InputError
from shardmath.generated import plan as formulas
from shardmath.input.arguments import typed_like
from shardmath.input.parameters import checked
from shardmath.input.quantities import duration, money
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.machines.prices import CENTS, prices_of, refuse_both
from shardmath.models.model import Model
from shardmath.search.nests.clusters import Address, client_of
from shardmath.search.spaces.standard import layouts

#: The most GPUs that are tried to meet a deadline; the largest clusters have fewer.
_MOST_GPUS = 2**20
#: Numbers of GPUs that are tried where only a deadline is given: so many doublings from the least that could meet it.
_DOUBLINGS = 4


@typed_like(layouts)
def plan(
    model: Model | str | PathLike[str],
    tokens: int | str,
    gpus: Sequence[Gpu | Cluster | str | PathLike[str]],
    *,
    num_gpus: Sequence[int] = (),
    deadline: int | str | None = None,
    budget: int | str | None = None,
    price: Mapping[str, float | str] | float | str | None = None,
    phases: Sequence[str] = (),
    batch_tokens: int | str | None = None,
    pause: int | str | None = None,
    restart: int | str | None = None,
    failures: str | None = None,
    carbon: str | None = None,
    seq_length: int | None = None,
    network: str | None = None,
    implementation: str | None = None,
    prices: Mapping[str, Any] | None = None,
    progress: ProgressOf | None = None,
    stopped: Callable[[], bool] = lambda: False,
    dask: Address = None,
    **arguments: Any,
) -> Plan:
    """Days, GPU-hours, money, energy and CO2 of a training on each kind and number of GPUs, and the best of them.

    ``tokens``, ``budget`` and ``batch_tokens`` may be text such as ``15T``, ``deadline``, ``pause`` and ``restart``
    such as ``90d``. ``batch_tokens``: of a step, by default as many whole sequences as 2^24 tokens hold. ``num_gpus``:
    by default four doublings from the least number that could meet the deadline. ``price``: of a GPU-hour, a number or
    one by kind of GPU; ``prices`` is its old name. ``phases``: ``TOKENS@LENGTH`` of later phases, out of ``tokens``.
    ``pause`` and ``restart``: seconds that a checkpoint stops training, and from a failure until training goes on.
    ``failures``: a training of the catalogue, or interruptions for 1000 GPU-days. ``carbon``: a grid of the catalogue,
    or grams for one kWh. ``progress``, ``stopped`` and ``dask`` are as in ``scale``; ``arguments`` are those of
    ``sweep``.

    Raises InputError for every value that is not legal, and where a figure of the machine is not known that the time
    of a step needs.

    Example:
        >>> answer = shardmath.plan("llama-3.1-8b", "1T", ["h100-80gb"], num_gpus=[64, 128], price=2.5)
        >>> answer.offers[answer.cheapest].num_gpus
        64
    """
    if prices is not None:
        warn("prices is called price now", DeprecationWarning, stacklevel=3)
        price = prices if price is None else price
    as_asked = as_model(model)
    implementation = default_implementation(as_asked) if implementation is None else implementation
    seq_length = checked("seq_length", default_seq_length(as_asked) if seq_length is None else seq_length)
    parts = phases_of(tokens, seq_length, phases)
    batches = tuple(batch_of(batch_tokens, part.seq_length) for part in parts)
    clusters = _clusters(gpus, network)
    refuse_both(price, arguments.get(CENTS))
    cents = arguments.get(CENTS)
    by_kind = prices_of(price if cents is None else Fraction(checked(CENTS, cents), 100), tuple(clusters.values()))
    priced = {kind: None if amount is None else float(amount)
              for kind, amount in zip(clusters, by_kind, strict=True)}
    ends = None if deadline is None else float(duration("deadline", deadline))
    limit = None if budget is None else float(money("budget", budget, "20M"))
    if limit is not None and all(amount is None for amount in priced.values()):
        kind = next(iter(priced))
        rule = f"must be given with the price of a GPU-hour, such as of {kind}"
        raise InputError("budget", budget, rule, f"--price {kind}=2.1")
    step = batches[0] * parts[0].seq_length
    if parts[0].tokens < step:
        rule = "must be enough for one step before later phases, and may end with B or T"
        raise InputError("tokens", tokens, rule, str(step + sum(part.tokens for part in parts[1:])))
    fails = failures_of(failures, pause, restart)
    grams, grid = electricity_of(carbon)
    if not num_gpus and ends is None:
        rule = "must be given where there is no deadline"
        raise InputError("num_gpus", ABSENT, rule, "--gpus 512, or --deadline 90d")
    offers: list[Offer] = []
    alone: Explanation | None = None
    overlaps: dict[str, None] = {}
    with client_of(dask) as client:
        for kind, cluster in clusters.items():
            alone = explain(as_asked, cluster, num_gpus=1, global_batch_size=1, seq_length=seq_length,
                            implementation=implementation)
            sizes = tuple(num_gpus) or _sizes(alone, cluster, sum(part.tokens for part in parts), ends)
            points = [
                scale(as_asked, cluster, sizes, global_batch_size=batch, seq_length=part.seq_length, dask=client,
                      implementation=implementation, progress=progress, stopped=stopped, **arguments).points
                for part, batch in zip(parts, batches, strict=True)
            ]
            overlaps |= {name: None for points_of_phase in points for point in points_of_phase if point.time is not None
                         for name in OVERLAPS if point.time.machine.get(name)}
            asked = Asked(kind, cluster, parts, fails, priced[kind], grams, ends, limit)
            offers += _kind(asked, list(zip(*points, strict=True)))
    assert alone is not None
    fastest, cheapest = chosen(offers)
    total = sum(part.tokens for part in parts)
    return Plan(
        as_asked, total, batches[0] * parts[0].seq_length, None if ends is None else formulas.days(seconds=ends), limit,
        "" if fails is None else fails.source, grid, risk_of(with_parts(arguments)), tuple(overlaps),
        tuple(offers), fastest, cheapest,
        tuple(optima(alone, total, limit, None if cheapest is None else offers[cheapest])),
        all(offer.complete for offer in offers),
    )


def _clusters(gpus: Sequence[Any], network: str | None) -> dict[str, Cluster]:
    """Return the clusters by the name of their kind. Raises InputError for none, and for one that is there twice."""
    if not gpus or isinstance(gpus, str):
        raise InputError("gpus", gpus, "must be a list of at least one kind of GPU")
    clusters: dict[str, Cluster] = {}
    for kind in gpus:
        cluster = as_cluster(kind, network)
        name = cluster.name if isinstance(kind, Cluster | PathLike) or str(kind).endswith(".toml") else cluster.gpu.name
        if name in clusters:
            raise InputError("gpus", name, "must not be there twice")
        clusters[name] = cluster
    return clusters


def _sizes(alone: Explanation, cluster: Cluster, tokens: int, deadline: float | None) -> tuple[int, ...]:
    """Return numbers of GPUs, whole servers times powers of two, from the least that could meet the deadline on."""
    if alone.time is None:
        raise InputError("gpu", cluster.gpu.name, f"must have a known time of a step: {alone.time_unknown}")
    assert deadline is not None
    least = formulas.least_gpus(deadline=deadline, mfu=alone.time.mfu, rate=alone.time.tokens_per_second, tokens=tokens)
    if least > _MOST_GPUS:
        later = math.ceil(deadline * least / _MOST_GPUS / 86400)
        rule = f"must be later: about {least:,.0f} GPUs would be needed, and a number without a unit is in seconds"
        raise InputError("deadline", f"{deadline:g} s", rule, f"{later}d")
    size = cluster.gpus_per_node
    while size < least:
        size *= 2
    return tuple(size << place for place in range(_DOUBLINGS))


def _kind(asked: Asked, rows: Sequence[tuple[Point, ...]]) -> list[Offer]:
    """Return the offers of one kind, with the gain of each over the next smaller one."""
    made = [offer_of(asked, points) for points in rows]
    return [replace(offer, gain=gain) for offer, gain in zip(made, gains(made), strict=True)]
