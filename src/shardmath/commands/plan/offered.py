"""One kind and number of GPUs: the days, money, energy and CO2 of a training whose layouts are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardmath.commands.plan.answers import Band, Offer, PhaseOffer
from shardmath.commands.plan.asked import Failures, Tokens
from shardmath.commands.scale import Point
from shardmath.generated import plan as formulas
from shardmath.generated.definitions import ERRORS
from shardmath.machines import Cluster


@dataclass(frozen=True)
class Asked:
    """Question about one kind of GPU: price of a GPU-hour, grams of CO2 for a kWh, seconds and money at most."""

    kind: str
    cluster: Cluster
    phases: tuple[Tokens, ...]
    failures: Failures | None
    price: float | None
    grams: float | None
    deadline: float | None
    budget: float | None


@dataclass(frozen=True)
class _Case:
    """Amounts of a training at some rates and with some failures."""

    days: float
    gpu_hours: float
    cost: float | None
    energy: float | None
    carbon: float | None
    goodput: float | None
    interval: float | None
    interruptions: float | None


def offer_of(asked: Asked, points: Sequence[Point]) -> Offer:
    """Return what the training takes on the GPUs of ``points``, one for each phase."""
    gaps = [point.gap for point in points]
    return replace(_offer(asked, points), complete=all(point.complete for point in points),
                   gap=None if None in gaps else max(gap for gap in gaps if gap is not None))


def _offer(asked: Asked, points: Sequence[Point]) -> Offer:
    size = points[0].num_gpus
    phases = tuple(
        PhaseOffer(part.tokens, part.seq_length, point.layout, point.data_parallel, point.peak_bytes,
                   point.time.tokens_per_second, point.time.mfu, point.watts_per_gpu)
        for part, point in zip(asked.phases, points, strict=True)
        if point.layout is not None and point.time is not None
    )
    if len(phases) < len(points):
        missing = min((point for point in points if point.layout is None), key=lambda point: point.any_legal)
        return _none(asked, size, missing.missing)
    fails = asked.failures
    fewest, usual, most = (None, None, None) if fails is None else (fails.fewest, fails.usual, fails.most)
    errors = [point.time.error for point in points if point.time is not None and point.time.error is not None]
    error = round(1000 * max(errors)) if errors else max(ERRORS.values())
    try:
        low, middle, high = (
            _case(asked, size, phases, rate, interruptions, error) for rate, interruptions in (
                (formulas.fast_rate, fewest), (None, usual), (formulas.slow_rate, most),
            )
        )
    except (OverflowError, ZeroDivisionError):
        return _none(asked, size, "it fails before it can save a checkpoint")
    days, hours = (Band(*(getattr(case, name) for case in (low, middle, high))) for name in ("days", "gpu_hours"))
    cost, energy, carbon = (_band(low, middle, high, name) for name in ("cost", "energy", "carbon"))
    last = None if asked.deadline is None else formulas.days(seconds=asked.deadline)
    return Offer(
        asked.kind, size, phases, "", middle.goodput, middle.interval, middle.interruptions, days, hours, asked.price,
        cost, energy, carbon, _verdict(days, last), _verdict(cost, asked.budget), None,
    )


def _none(asked: Asked, size: int, reason: str) -> Offer:
    return Offer(asked.kind, size, (), reason, *(None,) * 5, asked.price, *(None,) * 3, "", "", None)


def _case(
    asked: Asked, size: int, phases: Sequence[PhaseOffer], likely: Callable[..., float] | None,
    interruptions: tuple[float, float] | None, error: int,
) -> _Case:
    """Return the amounts of all phases; ``likely`` makes the rate of each one that the error allows."""
    goodput = interval = between = None
    if asked.failures is not None and interruptions is not None:
        pause, restart = asked.failures.pause, asked.failures.restart
        between = formulas.between_failures(gpu_days=interruptions[1], gpus=size, interruptions=interruptions[0])
        interval = formulas.interval(between_failures=between, pause=pause)
        goodput = formulas.goodput(between_failures=between, interval=interval, pause=pause, restart=restart)
    seconds = hours = energy = 0.0
    for phase in phases:
        rate = phase.tokens_per_second
        rate = rate if likely is None else likely(rate=rate, error_per_mille=error)
        busy = formulas.training_seconds(rate=rate, tokens=phase.tokens)
        took = busy if goodput is None else formulas.seconds(goodput=goodput, training_seconds=busy)
        own = formulas.gpu_hours(gpus=size, seconds=took)
        seconds, hours = seconds + took, hours + own
        energy += formulas.energy(gpu_hours=own, watts=phase.watts_per_gpu)
    known = energy or None
    return _Case(
        formulas.days(seconds=seconds), hours,
        None if asked.price is None else formulas.cost(gpu_hours=hours, price=asked.price), known,
        None if known is None or asked.grams is None else formulas.carbon(energy=known, intensity=asked.grams),
        goodput, interval,
        None if between is None else formulas.interruptions(between_failures=between, seconds=seconds),
    )


def _band(low: _Case, middle: _Case, high: _Case, name: str) -> Band | None:
    numbers = [getattr(case, name) for case in (low, middle, high)]
    return None if None in numbers else Band(*numbers)


def _verdict(band: Band | None, most: float | None) -> str:
    """Say whether an amount stays below ``most``; empty where either is not known."""
    if band is None or most is None:
        return ""
    return "met" if band.high <= most else "missed" if band.low > most else "perhaps"
