"""The account of a configuration with a replay of the steps of its peak rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardmath.account.accounting import Explanation, explanation
from shardmath.account.configured import Configuration
from shardmath.allocator.settings import Settings
from shardmath.compiler.evaluators import terms_at
from shardmath.configuration.job import Job
from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS
from shardmath.steps.pinned import pinned_beyond
from shardmath.steps.reserved import replayed_rank
from shardmath.steps.step import refuse_unreplayed


def refuse_unreplayed_job(job: Job) -> None:
    """Raise InputError for a job whose steps are not replayed yet."""
    refuse_unreplayed(job.evaluator.choices, job.values)
    refuse_unreplayed_kernels(job.evaluator.implementation, job.evaluator.choices)


def refuse_unreplayed_kernels(implementation: str, choices: Mapping[str, str]) -> None:
    """Raise InputError for an implementation, or kernels of it, whose steps are not replayed yet."""
    allowed = IMPLEMENTATIONS[implementation]["replayed"]
    if allowed is None:
        known = [name for name, item in IMPLEMENTATIONS.items() if item["replayed"] is not None]
        rule = f"must be one of {', '.join(known)}: steps of others are not replayed yet"
        raise InputError("implementation", implementation, rule, known[0])
    for axis in sorted(allowed, key="peak".__eq__):  # last, as the option of this one follows from the others
        options = allowed[axis]
        if (chosen := choices[axis]) not in options:
            rule = f"must be {' or '.join(options)}: steps of others are not replayed yet"
            raise InputError(axis, chosen, rule, options[0])


def replayed(configuration: Configuration, settings: Settings | None = None) -> Explanation:
    """Account for a configuration, and replay its peak rank where the order of its allocations is known.

    What its host pins is replayed by itself.

    A replay whose own peak is not the account's to the byte is not shown.
    Raises InputError as ``explanation`` does, and for ``settings`` of an allocator that nothing is replayed through.
    """
    account, job = explanation(configuration), configuration.job
    values = job.on_rank(account.peak_rank)
    account = replace(account, pinned_bytes=pinned_beyond(job.evaluator, values))
    try:
        refuse_unreplayed_job(job)
        numbers = terms_at(job.evaluator.terms, values)
        answer = replayed_rank(job.evaluator, values, numbers, settings or Settings())
    except InputError as error:
        if settings is not None:
            rule = f"must not be given, as nothing is replayed with {error.field} = {error.value}"
            raise InputError("alloc_conf", "given", rule) from error
        return replace(account, replay_unknown=str(error))
    return replace(account, replay=answer)

