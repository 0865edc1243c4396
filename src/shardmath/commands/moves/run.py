"""Sensitivities of the peak of one configuration, and the smallest changes that make it fit, each with its cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from typing import Any

import numpy as np

from shardmath.account.accounting import Explanation, RankAccount, explanation
from shardmath.account.configured import Configuration, configured
from shardmath.answers import Drawn, Hidden, Ratio
from shardmath.commands.moves.around import Around, Move, Replaced
from shardmath.commands.moves.formulas import SlopeFormulas, slope_formulas
from shardmath.commands.moves.peaks import Peak
from shardmath.commands.moves.sensitivities import Sensitivity, sensitivities
from shardmath.commands.moves.smallest import fitting, gaining, singles
from shardmath.commands.moves.variants import variants
from shardmath.configuration.choosing import following
from shardmath.configuration.risk import risk_of
from shardmath.configuration.settings import as_model
from shardmath.configuration.stages import parsed
from shardmath.errors import InputError
from shardmath.input.arguments import typed_like
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.untried import Untried


@dataclass(frozen=True)
class Moves(Drawn, room="moves", table="differences"):
    """Sensitivities of the peak of a configuration, and the smallest changes that make it fit.

    Sizes are in bytes, times in seconds.

    Raises FrozenInstanceError where a field is set.

    Example:
        >>> answer = shardmath.moves("llama-3.1-8b", "h100-80gb", num_gpus=16)
        >>> answer.fits, [change.name for change in answer.smallest[0].changes]
        (False, ['gradients', 'tensor_parallel'])
    """

    model: Model
    """Dimensions of the model."""
    cluster: Cluster
    """GPUs, servers and network."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    inputs: Mapping[str, int]
    """Every parameter by name."""
    recompute: str
    """Recompute mode."""
    rank: int
    """Pipeline rank that keeps most."""
    moment: str
    """Moment of a step at which it peaks."""
    peak_bytes: int
    """Bytes that it keeps then."""
    limit_bytes: int
    """Bytes that the peak must not exceed to fit, in the configuration as it is."""
    share: Ratio | None
    """Share of the memory that was asked for as the limit, exact; null where the verdict says what fits."""
    risk: float
    """Probability of running out below which a configuration fits, where no share is asked for."""
    fits: bool
    """True if the configuration fits unchanged."""
    seconds: float | None
    """Time of a step; null where it is not known."""
    time_unknown: str
    """Why the time is not known; empty where it is."""
    error: float | None
    """Error of nine of ten predicted steps, as a share; null where nothing was measured on such GPUs."""
    sensitivities: tuple[Sensitivity, ...]
    """How the peak moves with every symbol."""
    differences: tuple[Move, ...]
    """Every change of one thing: the next smaller and larger size, every other mode or kernel."""
    smallest: tuple[Move, ...]
    """The smallest changes that make it fit, the cheapest in time first; none where it fits."""
    gains: tuple[Move, ...]
    """Where it fits: changes that use the rest of the memory to be faster."""
    least: Move
    """The change that leaves the least peak, among all layouts with the same kernels."""
    untried: tuple[Untried, ...]
    """Layouts that were left out, with the option that tries them."""
    formulas_: SlopeFormulas | None
    """The formulas behind one sensitivity; null where they were not asked for (``--formula``)."""
    configuration: Hidden[Configuration]
    """The configuration."""
    explanation: Hidden[Explanation]
    """Its account."""

    @property
    def peak(self) -> RankAccount:
        """The account of the rank that needs most."""
        return self.explanation.peak

    def records(self) -> list[dict[str, Any]]:
        """Return every change of one thing; its values before and after are text, as some are names.

        Example:
            >>> answer = shardmath.moves("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
            >>> {name: answer.records()[0][name] for name in ("change", "before", "after", "change_bytes")}
            {'change': 'tensor_parallel', 'before': '4', 'after': '8', 'change_bytes': -11573649408}
        """
        def joined(changes: list[dict[str, Any]], field: str) -> str:
            return ", ".join(str(change[field]) for change in changes)

        return [{"change": joined(changes, "name"), "before": joined(changes, "before"),
                 "after": joined(changes, "after"), **row}
                for row in super().records() if (changes := row.pop("changes"))]

    def formulas(self, name: str) -> SlopeFormulas:
        """Get the formulas behind the sensitivity to a symbol, line by line of the account of the rank that needs most.

        Raises InputError for a name that is no symbol of the configuration.

        Example:
            >>> answer = shardmath.moves("llama-3.1-8b", "h100-80gb", num_gpus=16)
            >>> slope = answer.formulas("micro_batch_size")
            >>> slope.letter, slope.lines[0].formula
            ('b', 's*nₛ*(9 + 4*v/t)/c')
        """
        return slope_formulas(self.configuration.job, self.peak.rank, name)


@typed_like(configured)
def moves(
    model: Model | str | PathLike[str],
    gpu: Gpu | Cluster | str | PathLike[str],
    *,
    share: Fraction | int | float | str | None = None,
    vary: Iterable[str] = (),
    **arguments: Any,
) -> Moves:
    """Return sensitivities of the peak of a configuration, and the smallest changes that make it fit.

    ``arguments`` are those of ``explain``. What fits says the verdict, or a peak of at most ``share`` of the memory
    does (0.8 is the 80 % rule). The GPUs of the job and
    its batch stay what they are, so that data parallelism follows the other sizes. ``vary`` names kernel axes whose
    other options are tried too, beside precision of gradients, ZeRO stages and kernels of the same optimizer.

    Raises InputError for every value that is not legal.

    Example:
        >>> answer = shardmath.moves("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
        >>> answer.fits, answer.peak.total
        (True, 29367792640)
    """
    part = None if share is None else _share(share)
    chosen = as_model(model)
    configuration = configured(chosen, gpu, **arguments)
    account, job = explanation(configuration), configuration.job
    total, seconds = account.peak_bytes, None if account.time is None else account.time.seconds
    peak = Peak(job, _layers(arguments.get("pipeline_layout")))
    limit_bytes = peak.limit(job.values) if part is None else int(part * job.gpu.memory_bytes)
    fits = total <= limit_bytes
    around = Around(configuration, arguments, total, seconds, None if part is None else limit_bytes)
    made = variants(job, tuple(vary))
    alone = [*_next(singles(around, made), total, seconds), *_more_gpus(around, peak)]
    return Moves(
        job.model, configuration.cluster, job.evaluator.title(), job.values, job.recompute, account.peak_rank,
        account.peak.site, total, limit_bytes, part, risk_of(job.values), fits, seconds, account.time_unknown,
        None if account.time is None else account.time.error,
        sensitivities(peak, following(job.evaluator, arguments)),
        tuple(sorted(alone, key=lambda move: move.peak_bytes)),
        () if fits else _ranked(fitting(around, made)),
        _ranked(gaining(around, made, seconds)) if fits and seconds is not None else (),
        _least(around, limit_bytes), around.untried(), None, configuration, account,
    )


def _share(share: Fraction | int | float | str) -> Fraction:
    """Return the share of the memory that fits. Raises InputError unless it is a number above 0 and at most 1."""
    try:
        exact = Fraction(str(share))
    except (ValueError, ZeroDivisionError):
        exact = Fraction(0)
    if not 0 < exact <= 1:
        raise InputError("share", share, "must be a number above 0 and at most 1", "0.8 or 1")
    return exact


def _ranked(moves: Iterable[Move]) -> tuple[Move, ...]:
    """Sort by time; where that is not known, by the fewest model-parallel ranks, then by the least memory."""
    def order(move: Move) -> tuple[float, ...]:
        ranks = 1
        for name in ("tensor_parallel", "context_parallel", "pipeline_parallel"):
            ranks *= int(move.layout[name])
        return (ranks if move.seconds is None else move.seconds, move.peak_bytes, len(move.changes))

    return tuple(sorted(moves, key=order))


def _next(moves: Iterable[Move], total: int, seconds: float | None) -> Iterable[Move]:
    """Return the nearest single changes of each size on both sides, and all others that change anything."""
    nearest: dict[tuple[str, bool], Move] = {}
    for move in moves:
        change, = move.changes
        if isinstance(change.after, int) and isinstance(change.before, int):
            side = (change.name, change.after > change.before)
            known = nearest.get(side)
            if known is None or abs(change.after - change.before) < abs(_after(known) - change.before):
                nearest[side] = move
        elif (move.peak_bytes, move.seconds) != (total, seconds):
            yield move
    yield from nearest.values()


def _after(move: Move) -> int:
    return int(move.changes[0].after)


def _more_gpus(around: Around, peak: Peak) -> Iterator[Move]:
    """Yield the next smaller and larger data-parallel size, on as many GPUs as that takes."""
    configuration, name = around.configuration, "data_parallel"
    for step in (-1, 1) if around.configuration.job.evaluator.fixed.get(name) is None else ():
        after = peak.next_legal(name, step)
        if after is not None:
            before = configuration.job.values[name]
            gpus = configuration.job.values["num_gpus"] // before * after
            arguments = {**around.arguments_of((), around.own), "num_gpus": gpus}
            other = configured(configuration.job.model, configuration.cluster, **arguments)
            time, _ = other.time() if around.timed else (None, "")
            yield around.move((Replaced(name, before, after),), dict(around.own), peak.bytes(other.job.values),
                              peak.limit(other.job.values),
                              None if time is None else time.seconds, arguments)


def _layers(layout: Sequence[int] | str | None) -> tuple[int, ...] | None:
    """Return the explicit list of layers, if there is one."""
    return None if layout is None else parsed(layout) if isinstance(layout, str) else tuple(layout)


def _least(around: Around, limit: int) -> Move:
    """Return the legal layout of least memory; with an explicit list of layers among those that change two sizes.

    Return the layout of now, which fits up to ``limit`` bytes, where no search has any, as of an interleaved schedule
    on one stage.
    """
    searched = around.smallest()
    if searched is not None:
        return searched
    rows = around.rows((), 2)
    if rows.peaks.size:
        return rows.move(int(np.argmin(rows.peaks)))
    own = dict(around.own)
    return around.move((), own, around.peak_bytes, limit, around.seconds, around.arguments_of((), own))
