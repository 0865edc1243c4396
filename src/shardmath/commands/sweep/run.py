"""One sweep from the question to the answer: all spaces of a job, each swept by its nest, and the best of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from shardmath.account.time import time_unknown
from shardmath.commands.sweep.answer import SweepResult, result_of
from shardmath.commands.sweep.gathered import Gathered
from shardmath.commands.sweep.placing import with_candidates
from shardmath.configuration.fields import declared, documented
from shardmath.configuration.run import Search, search_of
from shardmath.errors import InputError
from shardmath.input.asking import asked_with, constructor
from shardmath.machines import Cluster
from shardmath.search.answered import answered
from shardmath.search.layout import RULES
from shardmath.search.legal import NAMES, OnLayouts, legal_layouts, plain_cells
from shardmath.search.nests.clusters import Address, client_of
from shardmath.search.nests.running import Progress
from shardmath.search.offered import as_arguments, spaces_of
from shardmath.search.spaces.standard import single_program
from shardmath.search.switches import switches
from shardmath.search.untried import impossible, switches_left


@dataclass(frozen=True, kw_only=True)
class Sweep(Search):
    """A search of layouts, and who hears of them."""

    rank_by: str | None = declared("time or memory", absent="time if all speeds are known")
    progress: Progress | None = declared("function that is called with candidates done and in all")
    stopped: Callable[[], bool] | None = declared(
        "function that tells the search to end with the best so far, which says by how much it may get better")
    on_layouts: OnLayouts | None = declared(
        "function that is called with all legal layouts, some at a time, as columns by name with sizes in bytes; for"
        " them the candidates are swept once more")
    dask: Address = declared(
        "the address of a Dask scheduler that runs the loops of large searches, a client of one, or local for processes"
        " of this machine")


def _result(asked: Sweep) -> SweepResult:
    """Evaluate every layout of ``num_gpus`` GPUs and keep the ``top`` best that fit.

    The best is the fastest, if all figures of the machine are known that its step time needs; otherwise, or with
    ``rank_by="memory"``, it is the one with the fewest model-parallel ranks; the answer names the missing figure.

    Example:
        >>> result = shardmath.sweep("llama-3.1-8b", "h100-80gb", 16, global_batch_size=128, recompute=["none"])
        >>> result.legal, result.best[0].verdict
        (1167, 'fits')
    """
    if asked.rank_by not in (None, *RULES):
        raise InputError("rank_by", asked.rank_by, "must be time or memory", "time")
    if asked.on_layouts is not None:  # columns of layouts do not say which program they are of
        single_program(asked)
    with as_arguments(asked.num_gpus):
        spaces = tuple(map(with_candidates, spaces_of(asked, asked.rank_by)))
        with client_of(asked.dask) as client:
            answers = answered(spaces, progress=asked.progress, stopped=asked.stopped or (lambda: False), client=client)
    machine = spaces[0].cluster
    assert isinstance(machine, Cluster)
    reasons = (time_unknown(part.evaluator, machine, asked.num_gpus) for part in answers.programs)
    unknown = "" if asked.rank_by else next(filter(None, reasons), "")
    result = result_of(spaces[0], answers, asked.top, unknown)
    unheard = replace(asked, progress=None, stopped=None, on_layouts=None, dask=None)
    result = replace(result, untried=(*result.untried, *switches_left(asked, answers.parts), *impossible(asked)),
                     gathered=partial(_gathered, unheard))
    if asked.on_layouts is not None and answers.complete:
        for part in answers.parts:
            for columns in legal_layouts(part, asked.progress):
                asked.on_layouts(columns)
    if not result.best and result.smallest is not None:  # complete
        return replace(result, switches=switches(asked, result.smallest.verdict))
    return result


sweep = asked_with("sweep", constructor(Sweep, documented(Sweep)), _result)


def _gathered(asked: Sweep) -> Gathered:
    """Sweep the layouts once more, for a picture. Raises InputError where they are of several programs."""
    single_program(asked)
    gathered = Gathered()
    with as_arguments(asked.num_gpus):
        parts = answered(spaces_of(asked, asked.rank_by)).parts
    for part in parts:
        for columns in legal_layouts(part):
            gathered(columns)
    return gathered


def _every(asked: Search) -> Iterator[dict[str, Any]]:
    """Return every legal layout of ``num_gpus`` GPUs of one implementation, one after the other, as plain data by name.

    Each has its sizes, ``peak_bytes``, ``verdict`` and ``step_seconds``, None where no time is known. ``top`` has no
    effect.

    Example:
        >>> every = shardmath.layouts("llama-3.1-8b", "h100-80gb", 16, global_batch_size=128, tensor_parallel=[4, 8])
        >>> min(every, key=lambda layout: layout["peak_bytes"])["recompute"]
        'full'
    """
    single_program(asked)
    with as_arguments(asked.num_gpus):
        parts = answered(spaces_of(asked)).parts
    return (
        dict(zip(NAMES, row, strict=True))
        for part in parts for columns in legal_layouts(part)
        for row in zip(*(plain_cells(columns[name]) for name in NAMES), strict=True)
    )


layouts = asked_with("layouts", search_of, _every)
