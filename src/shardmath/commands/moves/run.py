"""Sensitivities of the peak of one configuration, and the smallest changes that make it fit, each with its cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from os import PathLike
from typing import Any

import numpy as np

from shardmath.account.accounting import Explanation, RankAccount, explanation
from shardmath.account.configured import Configuration, configured
from shardmath.commands.moves.around import Around, Move, Replaced
from shardmath.commands.moves.formulas import SlopeFormulas, slope_formulas
from shardmath.commands.moves.peaks import Peak
from shardmath.commands.moves.sensitivities import Sensitivity, sensitivities
from shardmath.commands.moves.smallest import fitting, gaining, singles
from shardmath.commands.moves.variants import variants
from shardmath.configuration.choosing import following
from shardmath.configuration.settings import as_model
from shardmath.configuration.stages import parsed
from shardmath.errors import InputError
from shardmath.input.arguments import typed_like
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.untried import Untried

#: The published rule of thumb: an estimate of at most this share of the memory fits.
USUAL_SHARE = Fraction(4, 5)


@dataclass(frozen=True)
class Moves:
    """Return the sensitivities and the smallest fixes of ``configuration``.

    ``explanation`` is its account, ``limit_bytes`` what fits: ``share`` of the memory. ``sensitivities`` are to every
    symbol, ``differences`` single changes of what can be chosen: the next smaller and larger size, every other mode or
    kernel.
    ``smallest`` are the smallest sets of changes that make it fit; where it fits already they are empty, and ``gains``
    are those that make it faster and still fit. The cheapest in time come first. ``least`` is the legal layout of least
    memory among all with the same kernels. ``untried`` says what was left out.
    """

    configuration: Configuration
    explanation: Explanation
    limit_bytes: int
    share: Fraction
    sensitivities: tuple[Sensitivity, ...]
    differences: tuple[Move, ...]
    smallest: tuple[Move, ...]
    gains: tuple[Move, ...]
    least: Move
    untried: tuple[Untried, ...] = ()

    @property
    def peak(self) -> RankAccount:
        """The account of the rank that needs most."""
        return self.explanation.peak

    @property
    def seconds(self) -> float | None:
        """The time of a step; None where it is not known."""
        return None if self.explanation.time is None else self.explanation.time.seconds

    @property
    def fits(self) -> bool:
        """True if the configuration fits unchanged."""
        return self.peak.total <= self.limit_bytes

    def formulas(self, name: str) -> SlopeFormulas:
        """The formulas behind the sensitivity to a symbol, line by line of the account of the rank that needs most.

        Raises InputError for a name that is no symbol of the configuration.
        """
        return slope_formulas(self.configuration.job, self.peak.rank, name)

    def margin_bytes(self, move: Move) -> int:
        """Memory that a move leaves below what fits."""
        return self.limit_bytes - move.peak_bytes

    def ratio(self, move: Move) -> float | None:
        """The time of a step after a move over that of now."""
        return None if move.seconds is None or self.seconds is None else move.seconds / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; exact fractions as text."""
        job = self.configuration.job
        return {
            "model": job.model.model_dump(), "cluster": self.configuration.cluster.model_dump(),
            "implementation": job.evaluator.name, "inputs": dict(job.values), "recompute": job.recompute,
            "rank": self.peak.rank, "moment": self.peak.site, "peak_bytes": self.peak.total,
            "limit_bytes": self.limit_bytes, "share": str(self.share), "fits": self.fits, "seconds": self.seconds,
            "time_unknown": self.explanation.time_unknown,
            "sensitivities": [_exact(asdict(item)) for item in self.sensitivities],
            "differences": [self._row(move) for move in self.differences],
            "smallest": [self._row(move) for move in self.smallest],
            "gains": [self._row(move) for move in self.gains],
            "least": self._row(self.least), "untried": [asdict(item) for item in self.untried],
        }

    def _row(self, move: Move) -> dict[str, Any]:
        return {
            "changes": [asdict(change) for change in move.changes], "layout": dict(move.layout),
            "peak_bytes": move.peak_bytes, "change_bytes": move.peak_bytes - self.peak.total,
            "margin_bytes": self.margin_bytes(move), "seconds": move.seconds, "ratio": self.ratio(move),
        }


@typed_like(configured)
def moves(
    model: Model | str | PathLike[str],
    gpu: Gpu | Cluster | str | PathLike[str],
    *,
    share: Fraction | int | float | str = USUAL_SHARE,
    vary: Iterable[str] = (),
    **arguments: Any,
) -> Moves:
    """Sensitivities of the peak of a configuration, and the smallest changes that make it fit.

    ``arguments`` are those of ``explain``. An estimate of at most ``share`` of the memory fits. The GPUs of the job and
    its batch stay what they are, so that data parallelism follows the other sizes. ``vary`` names kernel axes whose
    other options are tried too, beside precision of gradients, ZeRO stages and kernels of the same optimizer.

    Raises InputError for every value that is not legal.
    """
    limit = _share(share)
    chosen = as_model(model)
    found = configured(chosen, gpu, **arguments)
    account = explanation(found)
    around = Around(found, arguments, account.time is not None)
    made = variants(found.job, tuple(vary))
    total, seconds = account.peak.total, None if account.time is None else account.time.seconds
    limit_bytes = int(limit * found.job.gpu.memory_bytes)
    fits = total <= limit_bytes
    peak = Peak(found.job, _layers(arguments.get("pipeline_layout")))
    alone = [*_next(singles(around, made), total, seconds), *_more_gpus(around, peak)]
    return Moves(
        found, account, limit_bytes, limit,
        sensitivities(peak, following(found.job.evaluator, arguments)),
        tuple(sorted(alone, key=lambda move: move.peak_bytes)),
        () if fits else _ranked(fitting(around, made, limit_bytes)),
        _ranked(gaining(around, made, limit_bytes, seconds)) if fits and seconds is not None else (),
        _least(around, Move((), dict(around.own), total, seconds, around.arguments_of((), around.own))),
        around.untried(),
    )


def _share(share: Fraction | int | float | str) -> Fraction:
    """The share of the memory that fits. Raises InputError unless it is a number above 0 and at most 1."""
    try:
        found = Fraction(str(share))
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    if not 0 < found <= 1:
        raise InputError("share", share, "must be a number above 0 and at most 1", "0.8 or 1")
    return found


def _ranked(found: Iterable[Move]) -> tuple[Move, ...]:
    """The cheapest in time first; where that is not known, the fewest model-parallel ranks, then the least memory."""
    def order(move: Move) -> tuple[float, ...]:
        ranks = 1
        for name in ("tensor_parallel", "context_parallel", "pipeline_parallel"):
            ranks *= int(move.layout[name])
        return (ranks if move.seconds is None else move.seconds, move.peak_bytes, len(move.changes))

    return tuple(sorted(found, key=order))


def _next(found: Iterable[Move], total: int, seconds: float | None) -> Iterable[Move]:
    """Of single changes of a size the nearest ones on both sides; of all others every one that changes anything."""
    nearest: dict[tuple[str, bool], Move] = {}
    for move in found:
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
    """The next smaller and larger data-parallel size, on as many GPUs as that takes."""
    found, name = around.configuration, "data_parallel"
    for step in (-1, 1) if around.configuration.job.evaluator.fixed.get(name) is None else ():
        after = peak.next_legal(name, step)
        if after is not None:
            before = found.job.values[name]
            gpus = found.job.values["num_gpus"] // before * after
            arguments = {**around.arguments_of((), around.own), "num_gpus": gpus}
            other = configured(found.job.model, found.cluster, **arguments)
            time, _ = other.time() if around.timed else (None, "")
            yield Move((Replaced(name, before, after),), dict(around.own), peak.bytes(other.job.values),
                       None if time is None else time.seconds, arguments)


def _layers(layout: Sequence[int] | str | None) -> tuple[int, ...] | None:
    """The explicit list of layers, if there is one."""
    return None if layout is None else parsed(layout) if isinstance(layout, str) else tuple(layout)


def _least(around: Around, own: Move) -> Move:
    """The legal layout of least memory; with an explicit list of layers among those that change two sizes.

    It is the ``own`` layout where no search has any, as of an interleaved schedule on one stage.
    """
    searched = around.smallest()
    if searched is not None:
        return searched
    rows = around.rows((), 2)
    return rows.move(int(np.argmin(rows.peaks))) if rows.peaks.size else own


def _exact(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Fraction) else value for name, value in data.items()}
