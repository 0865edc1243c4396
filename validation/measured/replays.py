"""Reserved memory of published runs as a replay of two steps gives it: a file, which ``make validate`` writes anew.

All rows take minutes. The page reads the file, and a test replays some of its rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from io import StringIO
from pathlib import Path

from shardmath.account.accounting import explanation
from shardmath.account.configured import configured
from shardmath.account.replaying import refuse_unreplayed_job
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.steps.reserved import replayed_rank
from validation.measured.case import PROCESS, RESERVED, Case
from validation.measured.sets import huggingface, nanotron, one_h100, swift_examples, torchtitan

NAME = "replayed.csv"
FILE = Path(__file__).resolve().parents[2] / "docs" / "validation" / NAME
_HEADS = ("run", "reserved_bytes", "allocated_bytes")


@cache
def replays() -> Mapping[str, int]:
    """Reserved bytes by run, from the file."""
    if not FILE.exists():
        return {}
    with FILE.open(encoding="utf-8", newline="") as file:
        return {row["run"]: int(row["reserved_bytes"]) for row in csv.DictReader(file)}


def replayed(cases: Iterable[Case] | None = None) -> str:
    """Replay every run whose reserved memory was measured; return the text of the file."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADS)
    for case in _replayed_cases() if cases is None else cases:
        if (numbers := replay_of(case)) is not None:
            writer.writerow((case.id, *numbers))
    return text.getvalue()


def _replayed_cases() -> Iterable[Case]:
    for table in (nanotron, torchtitan, huggingface, one_h100, swift_examples):
        yield from table.read()


def replay_of(case: Case) -> tuple[int, int] | None:
    """Reserved and allocated bytes of the measured rank; None where nothing was measured, or nothing is estimated."""
    ranks = [measured.rank for measured in case.measured if measured.quantity in (RESERVED, PROCESS)]
    if case.model is None or not ranks:
        return None
    try:
        configuration = configured(case.model, case.gpu, **case.arguments)
        job = configuration.job
        refuse_unreplayed_job(job)
    except InputError:
        return None
    values = job.on_rank(explanation(configuration).peak_rank if ranks[0] is None else ranks[0])
    answer = replayed_rank(job.evaluator, values, terms_at(job.evaluator.terms, values), case.allocator)
    return answer.reserved_bytes, answer.allocated_bytes
