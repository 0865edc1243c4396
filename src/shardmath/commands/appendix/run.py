"""The LaTeX appendix of one implementation, with the numbers of a configuration, and its BibTeX file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from shardmath import __version__
from shardmath.account.accounting import explanation
from shardmath.account.configured import Configuration
from shardmath.commands.explain.report import heading, shown_ranks
from shardmath.compiler.evaluators import find, in_ledger, terms_at
from shardmath.configuration.fields import FIRST
from shardmath.errors import InputError
from shardmath.generated.definitions import SPENT
from shardmath.input.parameters import MACHINE
from shardmath.reports.time import rates

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation
    from shardmath.symbolic.documents.configured import Configured, Time
    from shardmath.symbolic.documents.exported import Appendix

_NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def appendix(
    implementation: str = FIRST, *, kernels: Mapping[str, str] | None = None,
    configuration: Configuration | None = None, stem: str = "appendix", standalone: bool = True,
) -> Appendix:
    """Return the rows, formulas and sources of one implementation as LaTeX (``tex``) and BibTeX (``bib``).

    With a ``configuration``, implementation and kernels are those that it has, and the appendix is about its terms and
    numbers alone.
    ``stem`` is the name of both files without their ends. A document stands alone, or is to be read by another one
    (by ``input``), where ``standalone`` is false.

    Raises InputError for an unknown implementation or kernel, for kernels that are not counted together yet, and for a
    ``stem`` that LaTeX and BibTeX cannot read.
    """
    from shardmath.symbolic.documents.exported import exported

    if not _NAMES.fullmatch(stem):
        rule = "must be letters, digits, dots, underscores, pluses and minuses: BibTeX reads no other names"
        raise InputError("output", stem, rule, "appendix")
    evaluator = find(implementation, kernels) if configuration is None else configuration.job.evaluator
    chosen = in_ledger(evaluator.implementation, evaluator.choices)
    command = f"shardmath {__version__}: appendix of {chosen.name}"
    configured_numbers = None if configuration is None else _numbers(configuration)
    return exported(chosen, stem, command, configured_numbers, standalone)


def _numbers(configuration: Configuration) -> Configured:
    """Return every term of a configuration on every pipeline rank, exactly, and what ``explain`` says of it."""
    from shardmath.symbolic.documents.configured import Configured, Kept

    job, account = configuration.job, explanation(configuration)
    ranks = []
    for item in account.ranks:
        values = job.on_rank(item.rank)
        numbers = terms_at(job.evaluator.terms, values)
        lines = [(line.component, line.role, Fraction(line.bytes)) for line in item.lines]
        ranks.append(Kept(item.rank, item.in_flight, item.site, item.total, item.share, item.verdict, lines, numbers))
    machine = {} if account.time is None else account.time.machine
    return Configured(
        heading(account).rpartition("\n")[0], _values(configuration, machine), job.by_rank,
        job.values["gpu_memory"], ranks, [item.rank for item in shown_ranks(account)], _time(account),
        account.time_unknown,
    )


def _values(configuration: Configuration, machine: Mapping[str, int]) -> dict[str, int]:
    """Return the parameters of a configuration by name; of the machine's only those that time depends on."""
    return {name: value for name, value in configuration.job.values.items() if name not in MACHINE} | dict(machine)


def _time(account: Explanation) -> Time | None:
    from shardmath.symbolic.documents.configured import Time

    time = account.time
    if time is None:
        return None
    spent = [(part, seconds, SPENT[part]) for part, seconds in time.spent.items() if seconds]
    return Time(time.seconds, time.rank, spent, rates(time))
