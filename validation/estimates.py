"""Estimates of each run by each estimator, with the verdicts of the 80 % rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from shardmath.account.accounting import Explanation, explain
from shardmath.account.judged import rule_of
from shardmath.generated.definitions import RULE_80
from validation.runs import GLOBAL_BATCH_SIZE, GPU, MODEL, SEQ_LENGTH, Run

#: Estimators by name: two published readings and the counted ledger, with what the tables call them.
ESTIMATORS = {
    "fujii2024": "published",
    "fujii2024_norms": "published, norms whole",
    "ledger": "ledger",
}
#: Lasting bytes of training, which published formulas are about, without tensors of single moments.
SAVED = {"peak": "saved"}
RULE = tuple(name for name, _ in RULE_80)
FITS, OUT = RULE[0], RULE[-1]


@dataclass(frozen=True)
class Estimate:
    """Bytes of one GPU, their share of its memory, and the verdict."""

    bytes: Fraction
    share: float
    verdict: str


@dataclass(frozen=True)
class Cell:
    """One run with its estimates by estimator; none where the GPUs are not enough for the layout."""

    run: Run
    estimates: Mapping[str, Estimate]

    def contradicts(self, estimator: str) -> bool:
        """Tell if the run contradicts the rule: ``fits`` without a result, or the reverse."""
        if estimator not in self.estimates:
            return False
        return (self.estimates[estimator].verdict, self.run.status) in ((FITS, "dash"), (OUT, "ok"))


def estimated(runs: Iterable[Run]) -> tuple[Cell, ...]:
    """Return every run with its estimates, in order."""
    return tuple(Cell(run, estimates(run)) for run in runs)


@cache
def estimates(run: Run, distributed_optimizer: bool = True, saved_only: bool = False) -> Mapping[str, Estimate]:
    """Return the estimates of a run by estimator, from the inputs of the paper.

    ``saved_only``: the ledger without what lives only at moments of a step.

    fp32 gradients, distributed optimizer, sequence parallelism where TP is above 1, no recompute, 1F1B, and
    the vocabulary as it is: padded to a multiple of 1 times TP.
    """
    if run.data_parallel is None:
        return {}
    account = account_of(run, distributed_optimizer, saved_only)
    return {name: _estimate(total) for name, total in _totals(account).items()}


def account_of(run: Run, distributed_optimizer: bool = True, saved_only: bool = False) -> Explanation:
    """Account for a run as ``estimates`` does."""
    return explain(MODEL, GPU, **arguments_of(run, distributed_optimizer, saved_only))


def arguments_of(run: Run, distributed_optimizer: bool = True, saved_only: bool = False) -> dict[str, Any]:
    """Return the arguments of ``explain`` for a run, beside its model and GPU."""
    return {
        "seq_length": SEQ_LENGTH, "global_batch_size": GLOBAL_BATCH_SIZE,
        "micro_batch_size": run.micro_batch_size, "tensor_parallel": run.tensor_parallel,
        "context_parallel": run.context_parallel, "pipeline_parallel": run.pipeline_parallel,
        "num_gpus": run.num_gpus, "recompute": "none", "implementation": "megatron", "gradients": "fp32",
        "distributed_optimizer": distributed_optimizer, "vocab_multiple": 1,
        "kernels": SAVED if saved_only else None,
    }


def contingency(cells: Iterable[Cell], estimator: str) -> Counter[tuple[str | None, str]]:
    """Return runs by verdict (None: there is no such layout) and status."""
    counts: Counter[tuple[str | None, str]] = Counter()
    for cell in cells:
        estimate = cell.estimates.get(estimator)
        counts[None if estimate is None else estimate.verdict, cell.run.status] += 1
    return counts


def _totals(account: Explanation) -> dict[str, int | Fraction]:
    published = {item.name: item.total for item in account.published if item.name in ESTIMATORS}
    return {**published, "ledger": account.peak.total}


def _estimate(total: int | Fraction) -> Estimate:
    share = float(Fraction(total) / GPU.memory_bytes)
    return Estimate(Fraction(total), share, rule_of(total, GPU.memory_bytes))
