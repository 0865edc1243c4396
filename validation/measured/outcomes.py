"""Known runs that trained or failed: the constants of the probability of running out are fitted to them, and judged.

A failed run of nanotron's table crashed for a reason that is not recorded. Such runs are taken to crash for other
reasons with one probability, the background, which is fitted with the two constants and used nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.account.judged import FITS, rule_of
from shardmath.configuration.settings import libraries
from shardmath.generated.definitions import DEFAULTS, run_out_probability
from shardmath.machines.gpu import Gpu
from shardmath.symbolic.run_out import FITS_BELOW, OFFERED
from validation.estimates import account_of
from validation.measured.case import OUT_OF_MEMORY, Case
from validation.measured.datasets import DATASETS, cases_of
from validation.measured.estimates import Estimate, estimate
from validation.runs import read

#: Tables whose runs are judged: those with large models on whole GPUs. Small functional tests fill nothing.
JUDGED = ("simumax", "nanotron", "torchtitan", "hagemann", "known_to_run")
#: The table whose failures have no recorded reason.
UNRECORDED = "nanotron"
FUJII = "fujii2024"
#: Candidates: shares of the offered memory in hundredths, steepness, background in hundredths.
SCALES, STEEPNESSES, BACKGROUNDS = range(60, 121), range(2, 21), range(0, 31)
_TINY = 1e-9


@dataclass(frozen=True)
class Outcome:
    """One known run: its table, its bytes, if it ran out of memory, the CUDA context of its GPU in bytes, its name."""

    table: str
    allocated: int
    process: int
    memory: int
    ran_out: bool
    context: int = 0
    name: str = ""

    @property
    def probability(self) -> float:
        """Predicted probability of running out."""
        return run_out_probability(self.allocated, self.process, self.memory)

    @property
    def is_said_to_fit(self) -> bool:
        """True if the verdict is the first one."""
        return bool(self.probability < FITS_BELOW)

    @property
    def fits_by_rule(self) -> bool:
        """True if the published 80 % rule says so."""
        return rule_of(self.allocated, self.memory) == FITS


@dataclass(frozen=True)
class Fitted:
    """The constants of highest likelihood: both in hundredths but for the steepness."""

    scale: int
    steepness: int
    background: int


@cache
def outcomes() -> tuple[Outcome, ...]:
    """Return every run that is judged, by table."""
    known = [_of_case(dataset.name, case) for dataset in DATASETS if dataset.name in JUDGED
             for case in cases_of(dataset)]
    runs = [run for run in read() if run.data_parallel is not None and run.status != "not_run"]
    accounts = [account_of(run) for run in runs]
    fujii = [Outcome(FUJII, account.peak_bytes, account.process.total, account.gpu.memory_bytes, run.status == "dash",
                     context_on(account.gpu), f"{run.layout}, micro-batches of {run.micro_batch_size}")
             for run, account in zip(runs, accounts, strict=True)]
    return (*(item for item in known if item is not None), *fujii)


def _of_case(table: str, case: Case) -> Outcome | None:
    said = estimate(case)
    if not isinstance(said, Estimate):
        return None
    return Outcome(table, max(said.peaks), said.process, case.gpu.memory_bytes, case.status == OUT_OF_MEMORY,
                   context_on(case.gpu), f"{case.id}: {case.layout}, {case.group}")


def context_on(gpu: Gpu) -> int:
    """Return the bytes of the CUDA context that a process has on a GPU."""
    return libraries(gpu).get("context_bytes", DEFAULTS["context_bytes"])


def fitted(runs: Sequence[Outcome]) -> Fitted:
    """Find the constants with which the outcomes of some runs are most probable, by trying all."""
    share = np.array([run.process / run.memory for run in runs]) / float(OFFERED)
    certain = np.array([run.allocated > run.memory for run in runs])
    ran_out = np.array([run.ran_out for run in runs])
    unrecorded = np.array([run.table == UNRECORDED for run in runs])
    best = (np.inf, Fitted(0, 0, 0))
    for scale in SCALES:
        for steepness in STEEPNESSES:
            chance = np.where(certain, 1.0, np.exp(-(scale / 100 / share) ** steepness))
            recorded = _surprise(chance[~unrecorded], ran_out[~unrecorded])
            for background in BACKGROUNDS if unrecorded.any() else (0,):
                crash = background / 100 + (1 - background / 100) * chance[unrecorded]
                total = recorded + _surprise(crash, ran_out[unrecorded])
                best = min(best, (total, Fitted(scale, steepness, background)), key=lambda item: item[0])
    return best[1]


def _surprise(chance: NDArray[np.float64], happened: NDArray[Any]) -> float:
    """Return the negative logarithm of the likelihood of what happened."""
    chance = np.clip(chance, _TINY, 1 - _TINY)
    return float(-np.log(np.where(happened, chance, 1 - chance)).sum())


def chances(runs: Iterable[Outcome], constants: Fitted) -> NDArray[np.float64]:
    """Return probabilities of running out with other constants, without the background."""
    limit = constants.scale / 100 * float(OFFERED)
    return np.array([1.0 if run.allocated > run.memory else
                     np.exp(-(limit * run.memory / run.process) ** constants.steepness) for run in runs])


def brier(chance: Iterable[float], runs: Sequence[Outcome]) -> float:
    """Mean squared difference of probability and outcome: 0 is perfect. Raises ValueError for no runs."""
    if not runs:
        raise ValueError("no runs to judge")
    return float(np.mean([(own - run.ran_out) ** 2 for own, run in zip(chance, runs, strict=True)]))
