"""Neighbours of a layout: step time, memory, and the rule or limit that excludes each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shardmath.account.judged import FITS, verdict_of
from shardmath.answers import Answer
from shardmath.compiler.columns import formula_column
from shardmath.configuration.job import without_effect
from shardmath.errors import InputError
from shardmath.input.parameters import checked, refuse_illegal
from shardmath.search.nests.configurations import Configuration

#: Sizes that are doubled and halved, with the parameters that follow.
_STEPS = ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel", "micro_batch_size",
          "virtual_pipeline")


@dataclass(frozen=True)
class Neighbour(Answer):
    """A layout that differs in one size; the rest of the GPUs is data parallelism."""

    name: str
    """The size."""
    before: int
    """Its value in the choice."""
    after: int
    """Its value here: one doubling or halving away."""
    seconds: float | None
    """Seconds of a step; null where a rule is broken."""
    peak_bytes: int | None
    """Bytes of the peak; null where a rule is broken."""
    excluded: str
    """The rule that it breaks, or the verdict if it does not fit; empty where it fits."""


def neighbours(configuration: Configuration) -> Iterator[Neighbour]:
    """Yield every layout that is one doubling or halving away, legal or not."""
    for name in _STEPS:
        own = configuration.values[name]
        if name in without_effect(configuration.part.evaluator):
            continue
        for after in (own // 2, 2 * own):
            if after >= 1 and (own % 2 == 0 or after > own) and (name != "virtual_pipeline" or min(own, after) > 1):
                yield _neighbour(configuration, name, after)


def _neighbour(configuration: Configuration, name: str, after: int) -> Neighbour:
    before = configuration.values[name]
    try:
        values = _moved(configuration, name, after)
        refuse_illegal(configuration.part.evaluator.terms, values)
    except InputError as error:
        return Neighbour(name, before, after, None, None, f"{error.field} {error.rule}")
    terms = configuration.part.terms_at(values)
    peak = int(terms["peak"])
    verdict = verdict_of(peak, terms)
    return Neighbour(name, before, after, float(terms["step.time"]), peak, "" if verdict == FITS else verdict)


def _moved(configuration: Configuration, name: str, after: int) -> Mapping[str, int]:
    """Return all values with one of them changed. Raises InputError where one that follows is not a whole number."""
    values = {**configuration.values, name: checked(name, after)}
    for symbol, text in configuration.part.derived.items():
        value = formula_column(text, values)
        if value != int(value):
            raise InputError(symbol, float(value), _uneven(symbol, value, values))
        values[symbol] = int(value)
    if values["tensor_parallel"] == 1:
        values["sequence_parallel"] = 0
    elif configuration.values["tensor_parallel"] == 1:
        values["sequence_parallel"] = int(configuration.part.evaluator.defaults["sequence_parallel"])
    return values


def _uneven(symbol: str, value: float, values: Mapping[str, int]) -> str:
    """Return the rule that a symbol breaks which is not whole: of data parallelism, the GPUs that it would take."""
    gpus = f": takes {round(values['num_gpus'] / value)} GPUs or a multiple" if symbol == "data_parallel" else ""
    return f"must be a whole number{gpus}"
