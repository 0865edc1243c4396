"""The lines of frameworks that make the tensors of ledger rows, and the tests that count these.

Beside this file code.toml names places, code_lines.toml has their lines, oracles.toml the rows that each test counts,
and those that lie in the memory of a counted one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from typing import Any

from . import read

#: Words for rows of which code.toml has no entry, and for those that no test counts.
UNKNOWN, UNCOUNTED = "no line recorded", "counted by no test"
#: Keys of nested tables, from the outermost: of rows, and of what lines say of model classes.
_ENTRY, _FACT = ("framework", "package", "file", "name"), ("framework", "package", "model_class", "file", "name")


@dataclass(frozen=True)
class Code:
    """One line of a framework: the package, its release, the file in its repository, and the class or function."""

    package: str
    release: str
    file: str
    name: str
    line: int
    url: str

    @property
    def short(self) -> str:
        """The name of the file with the line."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True)
class Entry:
    """An entry of code.toml: a place in a file, the rows that are made there, and the options it holds for, by axis."""

    framework: str
    package: str
    file: str
    name: str
    rows: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]

    def matched(self, row: str, choices: Mapping[str, str]) -> int:
        """Return how many letters of ``row`` the entry names; -1 if it is not the place of the row."""
        letters = self.names(row)
        if letters >= 0 and any(choices[axis] not in options for axis, options in self.options.items()):
            return -1
        return letters

    def names(self, row: str) -> int:
        """Return how many letters of ``row`` the entry names, with whatever kernels; -1 for none."""
        return max((len(name) for name in self.rows if fnmatchcase(row, name)), default=-1)


@dataclass(frozen=True)
class Fact:
    """A place in a file that gives needs of models to a model class of a framework, or denies them."""

    framework: str
    package: str
    model_class: str
    file: str
    name: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries in the order of the file."""
    return tuple(_entry(keys, stated) for keys, value in _leaves(read("code")["rows"], len(_ENTRY))
                 for stated in _stated(value))


def _stated(value: Any) -> list[dict[str, list[str]]]:
    """Return the tables of a place: a list of rows is one without options, and a table stands for itself."""
    if isinstance(value, dict):
        return [value]
    return value if isinstance(value[0], dict) else [{"rows": value}]


def _entry(keys: tuple[str, ...], stated: Mapping[str, list[str]]) -> Entry:
    return Entry(**dict(zip(_ENTRY, keys, strict=True)), rows=tuple(stated["rows"]),
                 options={axis: tuple(allowed) for axis, allowed in stated.items() if axis != "rows"})


@cache
def facts() -> tuple[Fact, ...]:
    """Return what lines say of model classes, in the order of the file."""
    return tuple(Fact(**dict(zip(_FACT, keys, strict=True)), has=tuple(said.get("has", ())),
                      lacks=tuple(said.get("lacks", ())))
                 for keys, said in _leaves(read("code")["classes"], len(_FACT)))


def _leaves(table: Mapping[str, Any], depth: int) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what lies ``depth`` keys deep in nested tables, with these keys, in the order of the file."""
    for key, value in table.items():
        if depth == 1:
            yield (key,), value
        else:
            yield from (((key, *keys), leaf) for keys, leaf in _leaves(value, depth - 1))


def places() -> tuple[Entry | Fact, ...]:
    """Return all places that have a line: those of rows and those of model classes."""
    return (*entries(), *facts())


@cache
def packages() -> dict[str, dict[str, str]]:
    """Return the packages by key: repository, release and revision, and what is installed where."""
    return dict(read("code")["packages"])


@cache
def _lines() -> dict[str, Any]:
    return read("code_lines")


def code_of(framework: str, choices: Mapping[str, str], row: str) -> Code | None:
    """Return the line that makes ``row`` (component and tensor) with these choices; None if none is recorded."""
    known = [(entry.matched(row, choices), -place, entry) for place, entry in enumerate(entries())
             if entry.framework == framework]
    letters, _, entry = max(known, key=lambda item: item[:2], default=(-1, 0, None))
    return None if entry is None or letters < 0 else _code(entry)


def codes_of(framework: str, options: Mapping[str, tuple[str, ...]], row: str) -> tuple[Code, ...]:
    """Return each line that makes ``row`` with some of these options of axes, those of the first options first."""
    axes = {axis: options[axis] for entry in entries()
            if entry.framework == framework and entry.names(row) >= 0 for axis in entry.options}
    lines = [code_of(framework, dict(zip(axes, chosen, strict=True)), row) for chosen in product(*axes.values())]
    return tuple(line for line in dict.fromkeys(lines) if line is not None)


def oracle_of(framework: str, row: str) -> str:
    """Return the path of the test that counts ``row`` (component and tensor), from the root; empty if none does.

    Of a row that lies in the memory of another one it is the test of that one, see ``shared_with``.
    """
    return _files().get(framework, {}).get(shared_with(framework, row) or row, "")


def shared_with(framework: str, row: str) -> str:
    """Return the counted row of the same size in whose memory ``row`` lies; empty if it is counted itself, or not."""
    return str(_oracles()["shared"].get(framework, {}).get(row, ""))


@cache
def _files() -> dict[str, dict[str, str]]:
    """Return the files of tests by framework and row."""
    return {framework: {row: file for file, rows in files.items() for row in rows}
            for framework, files in _oracles()["counted"].items()}


@cache
def _oracles() -> dict[str, dict[str, dict[str, Any]]]:
    return read("oracles")


def _code(entry: Entry) -> Code:
    package = packages()[entry.package]
    line = _lines()[entry.package][entry.file]["lines"][entry.name]
    url = f"{package['repository']}/blob/{package['revision']}/{entry.file}#L{line}"
    return Code(entry.package, package["release"], entry.file, entry.name.partition(" > ")[0], line, url)
