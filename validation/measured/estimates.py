"""Answers of shardmath for a case: bytes of every pipeline rank, or the reason of a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any

from shardmath.account.accounting import Explanation, explain
from shardmath.errors import InputError
from shardmath.generated.definitions import WORDS
from validation.measured.case import BY_FORMULA, PEAK, PROCESS, RESERVED, STEADY, Case, Measured
from validation.measured.replays import replays

#: Roles that are there between two steps, with what the optimizer step leaves until the next one begins.
PERSISTENT = ("weight", "gradient", "optimizer", "buffer")
LEFT = "optimizer_step"
#: Implementations whose reserved memory is replayed.
REPLAYED = ("nanotron", "torchtitan", "huggingface")


@dataclass(frozen=True)
class Estimate:
    """Bytes of one layout: the peak and the persistent part of every rank, and the published estimate.

    ``verdict`` follows from the probability of running out. ``published`` is of the first rank, and None where the
    published function does not know such a model.
    """

    peaks: tuple[int, ...]
    steady: tuple[int, ...]
    sites: tuple[str, ...]
    share: float
    verdict: str
    rule_80: str
    published: Fraction | None
    process: int = 0
    """Bytes of the process on the fullest rank."""
    usual: int = 0
    """Reserved bytes of the fullest rank by the formula of searches."""
    ends: tuple[tuple[int, int], ...] = ()
    """Bytes of the process and reserved ones of them, at both ends of their ranges."""
    reserved: int | None = None
    """Reserved bytes of a replay, where there is one, or those of the formula for runs that are judged by it."""

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest bytes of the process that are stated; with a replay reserved memory has no range."""
        low, high = (total if self.reserved is None else total - reserved + self.reserved
                     for total, reserved in self.ends)
        return low, high

    def of(self, measured: Measured) -> int:
        """Return the predicted bytes that a measured number stands against.

        Without a replay, reserved memory stands against allocated memory, and memory of a process against that with
        reserved memory by the formula.
        """
        if measured.quantity == RESERVED and self.reserved is not None:
            return self.reserved
        if measured.quantity == PROCESS:
            return self.process if self.reserved is None else self.process - self.usual + self.reserved
        known = {PEAK: self.peaks, STEADY: self.steady, RESERVED: self.peaks}[measured.quantity]
        return max(known) if measured.rank is None else known[measured.rank]


@cache
def estimate(case: Case) -> Estimate | str:
    """Return the estimate of a case, or the reason why there is none."""
    answer = case.refusal or _estimate(case, case.arguments)
    if isinstance(answer, Estimate) and BY_FORMULA in case.traits:
        return replace(answer, reserved=replays().get(case.id, answer.usual))
    if isinstance(answer, Estimate) and (case.arguments.get("implementation") in REPLAYED
                                         or any(item.quantity == PROCESS for item in case.measured)):
        return replace(answer, reserved=replays().get(case.id))
    return answer


@cache
def other_estimate(case: Case, name: str) -> Estimate | str:
    """Return the estimate of another reading of a case, refused or not; KeyError if the case has none of that name."""
    return case.refusal if case.model is None else _estimate(case, case.others[name])


def _estimate(case: Case, arguments: Mapping[str, Any]) -> Estimate | str:
    assert case.model is not None, f"{case.id} has neither a model nor a refusal"
    try:
        return _read(explain(case.model, case.gpu, **arguments))
    except InputError as error:
        return str(error)


def _read(account: Explanation) -> Estimate:
    return Estimate(
        peaks=tuple(rank.total for rank in account.ranks),
        steady=tuple(
            sum(rank.by_role[role] for role in PERSISTENT) + rank.moments.get(LEFT, 0) for rank in account.ranks
        ),
        sites=tuple(rank.site for rank in account.ranks),
        share=account.peak.share, verdict=account.verdict, rule_80=account.rule_80,
        published=_published(account), process=account.process.total, usual=account.process.reserved,
        ends=tuple((end["total"], end["reserved"]) for end in (account.process.low, account.process.high)),
    )


def _published(account: Explanation) -> Fraction | None:
    """Return the published estimate of the first rank, whatever the framework; None for experts and latent attention.

    Its states and its activations are separate sums. The former have a factor of 3/2 for a gate: an MLP without
    one has as many parameters as a gated one that is 2/3 as wide. The latter know no gate.
    """
    known = account.model.architecture
    if (known["heads"], known["layers"]) != ("grouped", "dense"):
        return None
    module: Any = import_module("shardmath.generated.megatron_lm")
    values = {"virtual_pipeline": 1, **account.inputs, "pipeline_rank": 0}
    width = Fraction(values["ffn_hidden_size"]) * (1 if known["mlp"] in WORDS["mlp"].values() else Fraction(2, 3))

    def term(name: str, **others: Fraction) -> Fraction:
        values_by_name = {key: Fraction(values[key]) for key in module.INPUTS} | others
        return Fraction(module.terms(**values_by_name)[f"megatron_lm.{name}"])

    return term("static", ffn_hidden_size=width) + term("activations")
