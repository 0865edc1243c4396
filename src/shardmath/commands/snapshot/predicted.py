"""A run as its replay has it: the tensors of its peak in the order of their making, and memory over two steps."""

from __future__ import annotations

from dataclasses import dataclass

from shardmath.account.configured import Configuration
from shardmath.account.replaying import refuse_unreplayed_job
from shardmath.allocator.settings import Settings
from shardmath.allocator.trace import Action, Event, Replay
from shardmath.commands.snapshot.answers import Fullest, Predicted
from shardmath.commands.snapshot.matched import Expected
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.steps.reserved import replayed_steps
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps

#: Tensors of a step that are no row and no state, by their name, and the role of all others.
_ROLES = {"input": "input", "next": "activation"}
_OTHERS = "transient"


@dataclass(frozen=True)
class Prediction:
    """The prediction for one rank: what is answered, its tensors at the peak, and memory after every event."""

    answer: Predicted
    expected: tuple[Expected, ...]
    timeline: tuple[tuple[int, int], ...]


def prediction(configuration: Configuration, rank: int | None, settings: Settings | None) -> Prediction:
    """Replay two steps of a pipeline rank, or of the one with the largest peak.

    Raises InputError for a rank that the run lacks, and for a run whose steps are not replayed yet or have another peak
    than the ledger.
    """
    job = configuration.job
    refuse_unreplayed_job(job)
    ranks = range(job.values["pipeline_parallel"])
    if rank is not None and rank not in ranks:
        raise InputError("rank", rank, f"must be a pipeline rank from 0 to {ranks[-1]}", str(ranks[-1]))
    evaluated = {place: terms_at(job.evaluator.terms, job.on_rank(place))
                 for place in (ranks if rank is None else (rank,))}
    place = max(evaluated, key=lambda item: (evaluated[item]["stage.total"], -item))
    steps, replay, _, _ = replayed_steps(job.evaluator, job.on_rank(place), evaluated[place], settings or Settings())
    answer = Predicted(place, steps.trace.peak, None if settings is None else fullest(replay))
    timeline = tuple((moment.allocated, moment.reserved) for moment in replay.timeline)
    return Prediction(answer, _at_peak(steps), timeline)


def fullest(replay: Replay) -> Fullest:
    """Return memory by cause when a replay reserves most."""
    at = replay.fullest
    return Fullest(
        reserved_bytes=at.reserved_bytes, allocated_bytes=at.allocated_bytes,
        rounding_bytes=at.rounding_bytes, awaiting_bytes=at.awaiting_bytes,
        split_bytes=at.inactive_split_bytes, cached_bytes=at.cached_bytes,
    )


def _at_peak(steps: Steps) -> tuple[Expected, ...]:
    """Return the tensors in use when the trace first holds most."""
    rows, live = steps.rows, dict[int, Event]()
    now = 0
    peak = steps.trace.peak
    for event in steps.trace.events:
        if event.action is Action.ALLOCATE:
            live[event.key] = event
            now += event.size
            if now == peak:
                break
        elif event.action is Action.FREE:
            now -= live.pop(event.key).size
    return tuple(Expected(event.row, _role(rows, event.row), event.size) for event in live.values())


def _role(rows: Rows, name: str) -> str:
    if name in rows.states:
        return rows.states[name][0]
    if name.endswith(".gradient"):
        return "gradient"
    return rows.roles.get(name) or _ROLES.get(name, _OTHERS)
