"""Rows of one table that ask for formulas of their own, by the names in some of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardmath.configuration.choosing import has_own_pipeline
from shardmath.errors import InputError, nearest_names
from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS
from shardmath.search.layout import USUAL_SCHEDULES

IMPLEMENTATION = "implementation"
#: The column with names of schedules, as a sweep writes it: 1F1B where interleaved chunks are one on a rank.
SCHEDULE = "schedule"
#: Columns of names that ask for formulas of their own, row by row.
GROUPING = (IMPLEMENTATION, SCHEDULE)
_KNOWN: Mapping[str, Sequence[str]] = {IMPLEMENTATION: tuple(IMPLEMENTATIONS), SCHEDULE: tuple(CHOICES[SCHEDULE][1])}
#: Numbers of rows in the table, counted from 0.
RowNumbers = NDArray[np.intp]
#: The names of a row, in the order of the columns that group rows.
Names = tuple[str, ...]


class Alike(NamedTuple):
    """Rows with the same names: the number of the first, and the columns that have their usual values throughout."""

    first: int
    usual: frozenset[str]


class Kind(NamedTuple):
    """Formulas that rows ask for: an implementation, and a schedule unless the implementation's own counts it."""

    implementation: str | None
    schedule: str | None

    def choices(self, kernels: Mapping[str, str] | None) -> tuple[str | None, Mapping[str, str] | None]:
        """Return the implementation and the kernels of these rows, with those of all rows."""
        return self.implementation, kernels if self.schedule is None else {**(kernels or {}), SCHEDULE: self.schedule}


class Work(Protocol):
    """Function on rows that ask for the same formulas, with their numbers in the table."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer."""

    def __call__(self, rows: RowNumbers, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the answer to some rows."""


@dataclass(frozen=True)
class Grouped:
    """Function on one batch and the number of its first row: rows of each kind go to the work of that kind.

    ``asked`` has the kind of every combination of names that the table has in ``columns``.
    """

    columns: Sequence[str]
    asked: Mapping[Names, Kind]
    works: Mapping[Kind, Work]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer, the same for all kinds."""
        return next(iter(self.works.values())).schema

    def __call__(self, item: tuple[int, pa.RecordBatch]) -> pa.RecordBatch:
        """Return the answer to a batch, its rows in their order."""
        first, batch = item
        rows = np.arange(first, first + batch.num_rows)
        if len(self.works) == 1:
            (work,) = self.works.values()
            return work(rows, batch)
        places: dict[Kind, list[RowNumbers]] = {}
        for names, own in grouped(batch, self.columns):
            places.setdefault(self.asked[names], []).append(own)
        order, answers = [], []
        for kind, parts in places.items():
            own = np.sort(np.concatenate(parts))
            answers.append(self.works[kind](rows[own], batch.take(pa.array(own))))
            order.append(own)
        whole = pa.Table.from_batches([answer.cast(self.schema) for answer in answers], self.schema)
        back = np.argsort(np.concatenate(order), kind="stable")
        (answer,) = whole.unify_dictionaries().take(pa.array(back)).combine_chunks().to_batches()
        return answer


def grouped(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Names, RowNumbers]]:
    """Yield the names in ``columns`` that rows of a batch have together, and the places of these rows.

    Raises InputError for a column that has no names.
    """
    codes, names = np.zeros(batch.num_rows, np.int64), list[Names]([()])
    for column in columns:
        try:
            texts = pc.dictionary_encode(batch.column(column).cast(pa.string()), null_encoding="encode")
        except pa.ArrowException:
            raise InputError(column, str(batch.column(column).type), "must be a column of names") from None
        own = [str(name) for name in texts.dictionary.to_pylist()]
        codes = codes * len(own) + texts.indices.to_numpy()
        names = [(*before, name) for before in names for name in own]
    for code in np.unique(codes):
        yield names[int(code)], np.flatnonzero(codes == code)


def kinds_of(
    rows: Mapping[Names, Alike], columns: Sequence[str], implementation: str | None,
    kernels: Mapping[str, str] | None,
) -> dict[Names, Kind]:
    """Return the kinds of rows by the names that they have in ``columns``; ``rows`` has those that the table has.

    A schedule in ``kernels`` is that of all rows. Raises InputError for unknown names, with the row, and for an
    implementation that is given beside a column of them.
    """
    if implementation is not None and IMPLEMENTATION in columns:
        raise InputError(IMPLEMENTATION, implementation, "must not be given both as a column and as a value")
    kinds = {}
    for names, (row, _) in sorted(rows.items(), key=lambda item: item[1].first):
        named = dict(zip(columns, names, strict=True))
        for column, name in named.items():
            if name not in _KNOWN[column]:
                rule = f"must be one of {', '.join(_KNOWN[column])} (row {row})"
                raise InputError(column, name, rule, nearest_names(name, _KNOWN[column]))
        own, schedule = named.get(IMPLEMENTATION, implementation), named.get(SCHEDULE)
        is_usual = schedule in _usual(own) or SCHEDULE in (kernels or {})
        kinds[names] = Kind(own, None if is_usual else schedule)
    return kinds or {(): Kind(implementation, None)}


def _usual(implementation: str | None) -> Sequence[str]:
    """Return the schedules of rows that need no schedule to be chosen: a pipeline that is another program has one."""
    return USUAL_SCHEDULES[:1] if implementation is not None and has_own_pipeline(implementation) else USUAL_SCHEDULES
