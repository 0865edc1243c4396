"""Reserved memory where experts get other tokens in every layer: a file, which ``make validate`` writes anew.

Replays of steps have as many tokens for every expert. Here the load of a rank is drawn for each layer of each
micro-batch, and its steps are replayed with that. No published run states its loads: the draws are no estimate of them.
Each is replayed twice: tensors of all-to-alls come back as they are freed, or NCCL holds them back.
The page reads the file, as rows take seconds each, and a test draws one of them again.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cache
from io import StringIO
from pathlib import Path
from random import Random

from shardmath.account.accounting import explanation
from shardmath.account.configured import configured
from shardmath.account.replaying import refuse_unreplayed_job
from shardmath.allocator.settings import Settings
from shardmath.allocator.trace import replay
from shardmath.compiler.evaluators import terms_at
from shardmath.configuration.job import Job
from shardmath.errors import InputError
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps, Turn
from validation.measured.case import Case
from validation.measured.sets import swift_examples

NAME = "uneven.csv"
FILE = Path(__file__).resolve().parents[2] / "docs" / "validation" / NAME
#: Standard deviations of a rank's load, in percent of the mean; 0 are loads that are all alike.
SPREADS = (0, 20, 40, 60)
#: Streams of collectives: without tensors that NCCL holds back, and with them.
CURRENT, OWN = "current", "own"
#: Steps that are replayed, and percent to which loads are rounded.
_STEPS, _GRAIN = 8, 10
_EXPANDABLE = "expandable_segments:True"


@dataclass(frozen=True)
class Uneven:
    """A replay: its run, allocator, stream of collectives, spread and largest of the loads in percent, and bytes."""

    run: str
    alloc_conf: str
    collectives: str
    spread_percent: int
    largest_percent: int
    reserved_bytes: int
    allocated_bytes: int


@cache
def stored() -> tuple[Uneven, ...]:
    """Return the replays of the file."""
    if not FILE.exists():
        return ()
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(Uneven(run, conf, collectives, *map(int, numbers))
                     for run, conf, collectives, *numbers in list(csv.reader(file))[1:])


def replayed() -> str:
    """Replay every run with experts that is replayed at all; return the text of the file."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Uneven))
    for case in filter(is_replayed, swift_examples.read()):
        for collectives in (CURRENT, OWN):
            for spread in SPREADS:
                writer.writerows(asdict(item).values() for item in replays_of(case, spread, collectives))
    return text.getvalue()


def is_replayed(case: Case) -> bool:
    """Tell whether a run has experts, a measured figure, and steps that are replayed."""
    if case.model is None or not case.model.num_experts or not case.measured:
        return False
    try:
        refuse_unreplayed_job(configured(case.model, case.gpu, **case.arguments).job)
    except InputError:
        return False
    return True


def replays_of(case: Case, spread: int, collectives: str) -> Iterable[Uneven]:
    """Replay the fullest rank of a run with drawn loads, through its own allocator and one that grows into memory."""
    assert case.model is not None
    kernels = {**case.arguments["kernels"], "collectives": collectives}
    configuration = configured(case.model, case.gpu, **{**case.arguments, "kernels": kernels})
    job = configuration.job
    rank = explanation(configuration).peak_rank
    loads = _Loads(job, rank, spread, Random(f"{case.id} {spread}"))
    steps = Steps(loads.rows(100), job.evaluator.choices["schedule"],
                  job.values["microbatch_group"] or job.values["pipeline_parallel"], of_layer=loads.of_layer)
    events = steps.run(_STEPS)
    grown = Settings.parsed(_EXPANDABLE)
    for name, settings in {"": case.allocator, _EXPANDABLE: grown}.items():
        if settings != grown or name:
            yield Uneven(case.id, name, collectives, spread, max(loads.drawn.values()),
                         replay(events, settings).reserved_peak, steps.trace.peak)


class _Loads:
    """Loads of a rank's layers, and their rows: shares of its expert-parallel group that sum to all tokens."""

    def __init__(self, job: Job, rank: int, spread: int, draw: Random) -> None:
        self._job, self._rank, self._draw = job, rank, draw
        self._ranks = int(job.values["expert_parallel"])
        # Shares of ranks have this spread where they are a Dirichlet distribution with these parameters.
        self._parameter = ((self._ranks - 1) * (100 / spread) ** 2 - 1) / self._ranks if spread else 0.0
        self._rows: dict[int, Rows] = {}
        self.drawn: dict[Turn, int] = {}

    def of_layer(self, turn: Turn) -> Rows:
        """Return the rows of a layer at work; both of its passes have the same load."""
        if turn not in self.drawn:
            self.drawn[turn] = self._load()
        return self.rows(self.drawn[turn])

    def rows(self, load: int) -> Rows:
        """Return the rows of the rank at a load in percent."""
        if load not in self._rows:
            values = {**self._job.on_rank(self._rank), "expert_load_percent": load}
            self._rows[load] = Rows.of(self._job.evaluator, values, terms_at(self._job.evaluator.terms, values))
        return self._rows[load]

    def _load(self) -> int:
        if not self._parameter:
            return 100
        own, *others = (self._draw.gammavariate(self._parameter, 1.0) for _ in range(self._ranks))
        share = own / (own + sum(others))
        return max(_GRAIN, round(100 * self._ranks * share / _GRAIN) * _GRAIN)
