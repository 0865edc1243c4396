"""Questions to a space: the best configurations, Pareto fronts, histograms."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from shardmath.errors import ABSENT, InputError, nearest_names
from shardmath.input.parameters import long_names

#: Which configurations a question is about: those that fit, those too that may fit, or all legal ones.
AMONG = ("fits", "uncertain", "legal")
#: The most configurations that a question keeps, and the most edges of a histogram.
MOST = 10_000
#: Units of sizes, each 1024 of the one before.
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SIZE = re.compile(rf"(\d{{1,9}}) ?({'|'.join(_UNITS)})", re.ASCII)


@dataclass(frozen=True)
class Best:
    """The ``count`` best configurations, for each combination of candidates of the axes ``per``.

    ``by`` are formulas, compared one after the other; smaller is better. Of equal configurations the first one of
    the space is the best.
    """

    key: ClassVar[str] = "best"
    name: str
    by: tuple[str, ...]
    count: int = 10
    per: tuple[str, ...] = ()
    among: str = "fits"

    def __post_init__(self) -> None:
        _formulas(self, 1, 8)
        object.__setattr__(self, "per", _texts(f"questions.{self.name}.per", self.per))
        _integer(f"questions.{self.name}.count", self.count)
        if not 1 <= self.count <= MOST:
            nearest = str(min(max(self.count, 1), MOST))
            raise InputError(f"questions.{self.name}.count", self.count, f"must be from 1 to {MOST}", nearest)
        _one_of(self)

    @property
    def formulas(self) -> tuple[str, ...]:
        """The texts of all formulas."""
        return self.by


@dataclass(frozen=True)
class Front:
    """The configurations that are not beaten: none is smaller in one of the 2 or 3 formulas and larger in none.

    Of equal configurations only the first one of the space is kept.
    """

    key: ClassVar[str] = "front"
    name: str
    by: tuple[str, ...]
    among: str = "fits"

    def __post_init__(self) -> None:
        _formulas(self, 2, 3)
        _one_of(self)

    @property
    def formulas(self) -> tuple[str, ...]:
        """The texts of all formulas."""
        return self.by


@dataclass(frozen=True)
class Histogram:
    """How many configurations lie between the ascending ``edges`` of a formula.

    There is one count more than edges: below the first, from each up to but without the next, from the last on.
    An edge is an integer or a size, such as ``16 GiB``.
    """

    key: ClassVar[str] = "histogram"
    name: str
    of: str
    edges: tuple[int, ...]
    among: str = "fits"

    def __post_init__(self) -> None:
        if not isinstance(self.of, str):
            raise InputError(f"questions.{self.name}.{self.key}", self.of, "must be a formula")
        object.__setattr__(self, "of", long_names(self.of))
        field = f"questions.{self.name}.edges"
        if isinstance(self.edges, str | Mapping) or not isinstance(self.edges, Sequence):
            raise InputError(field, self.edges, "must be a list of integers or sizes", '["16 GiB", "32 GiB"]')
        edges = tuple(_size(field, edge) if isinstance(edge, str) else edge for edge in self.edges)
        object.__setattr__(self, "edges", edges)
        for edge in self.edges:
            _integer(field, edge)
        if not 1 <= len(self.edges) <= MOST:
            raise InputError(field, f"{len(self.edges)} edges", f"must have from 1 to {MOST} edges")
        for below, above in zip(self.edges, self.edges[1:], strict=False):
            if below >= above:
                raise InputError(field, above, f"must be ascending: it comes after {below}", str(below + 1))
        _one_of(self)

    @property
    def formulas(self) -> tuple[str, ...]:
        """The texts of all formulas."""
        return (self.of,)


@dataclass(frozen=True)
class Rows:
    """Every configuration with its peak, its verdict and the values of further formulas: what becomes a table.

    No file asks for it: it needs a place to write to.
    """

    key: ClassVar[str] = "rows"
    name: str = "rows"
    of: tuple[str, ...] = ()
    among: str = "fits"

    def __post_init__(self) -> None:
        _formulas(self, 0, 256)
        if len({*self.of}) < len(self.of):
            raise InputError(self.name, list(self.of), "must not have a formula twice")
        _one_of(self)

    @property
    def formulas(self) -> tuple[str, ...]:
        """The texts of all formulas."""
        return self.of


Question = Best | Front | Histogram | Rows
_KINDS: dict[str, type[Best] | type[Front] | type[Histogram]] = {kind.key: kind for kind in (Best, Front, Histogram)}
#: The field that a file names after the kind of question.
_FIRST = {"best": "by", "front": "by", "histogram": "of"}


def read(name: str, table: object) -> Question:
    """Return a question from the table of a file. Raises InputError for unknown, missing and wrong keys."""
    field = f"questions.{name}"
    if not isinstance(table, Mapping):
        raise InputError(field, table, f"must be a table with one of {', '.join(_KINDS)}")
    kinds = [kind for kind in _KINDS if kind in table]
    if len(kinds) != 1:
        raise InputError(field, dict(table), f"must have exactly one of {', '.join(_KINDS)}")
    kind = _KINDS[kinds[0]]
    first = _FIRST[kind.key]
    keys = {kind.key if item.name == first else item.name: item.name for item in fields(kind) if item.name != "name"}
    for key in table:
        if key not in keys:
            raise InputError(f"{field}.{key}", table[key], "must not be given: there is no such key",
                             nearest_names(str(key), keys))
    if kind is Histogram and "edges" not in table:
        raise InputError(f"{field}.edges", ABSENT, "must be given")
    return kind(name, **{keys[key]: value for key, value in table.items()})


def of_program(question: Question, programs: Collection[str]) -> Question:
    """Return a question as a part is asked it, which has one option of each of the ``programs``."""
    if not isinstance(question, Best):
        return question
    return replace(question, per=tuple(name for name in question.per if name not in programs))


def written(question: Question) -> dict[str, Any]:
    """Return a question as plain data: what ``read`` takes."""
    plain = {item.name: getattr(question, item.name) for item in fields(question) if item.name != "name"}
    first = plain.pop(_FIRST[question.key])
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in {question.key: first, **plain}.items()
    }


def _formulas(question: Best | Front | Rows, least: int, most: int) -> None:
    field = f"questions.{question.name}.{question.key}"
    texts = _texts(field, question.formulas)
    if not least <= len(texts) <= most:
        raise InputError(field, list(texts), f"must have from {least} to {most} formulas")
    object.__setattr__(question, "of" if isinstance(question, Rows) else "by", tuple(map(long_names, texts)))


def _texts(field: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(field, value, "must be a list of texts")
    for item in value:
        if not isinstance(item, str):
            raise InputError(field, item, "must be text")
    return tuple(value)


def _size(field: str, text: str) -> int:
    """Return the bytes of a size such as ``16 GiB``. Raises InputError for any other text."""
    if match := _SIZE.fullmatch(text):
        return int(match[1]) << 10 * _UNITS.index(match[2])
    raise InputError(field, text, "must be an integer, or a size with its unit", "16 GiB")


def _integer(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(field, value, "must be an integer")
    if abs(value) > 2**53:
        raise InputError(field, value, "must be at most 2^53, for exact arithmetic")


def _one_of(question: Question) -> None:
    if question.among not in AMONG:
        raise InputError(f"questions.{question.name}.among", question.among, f"must be one of {', '.join(AMONG)}",
                         nearest_names(str(question.among), AMONG))
