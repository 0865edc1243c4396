"""One table of settings for each format, as data in ``tables/``, and the one translation that serves them all.

A table says of every key of its format which setting of a vocabulary it is: that of ``transformers`` (the names of
Hugging Face's ``TrainingArguments``, of TRL, PEFT and DeepSpeed), or that of a framework of its own. A key that is no
such setting is without effect on memory, not counted yet, or refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from shardmath.errors import InputError, nearest_names
from shardmath.formats.options import Options
from shardmath.formats.scripts.expansion import unmarked

FOLDER = Path(__file__).parent / "tables"
#: Words that leave a setting at what it is without one.
_OFF = ("", "false", "null", "none", "no", "0", "0.0", "[]", "{}")
#: Ends of keys that are off with 1.
_SIZES = ("parallel_size", "parallel_degree", "parallel_dim", "replicate_size", "tp_size", "cp_size", "sp_size",
          "partition_size")
#: In a table of words: any other word, which is passed on.
ANY = "*"

Words = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """The settings of one format.

    ``signs`` are sets of keys by which a file is known. ``own`` are names of the vocabulary itself, ``means`` keys that
    are called otherwise there, ``opposite`` those whose setting says the contrary. ``words`` has by key and word the
    settings that the word stands for, ``each`` the same for every word of a list. ``implied`` has by key what follows
    where the key is there, whatever its word. ``defaults`` are settings where a file is silent, ``files`` keys that
    name a file of another format. ``idle`` changes no memory; ``uncounted`` and ``refused`` say why.
    """

    name: str
    title: str
    vocabulary: str = ""
    release: str = ""
    program: str = ""
    signs: tuple[tuple[str, ...], ...] = ()
    own: frozenset[str] = frozenset()
    means: Mapping[str, str] = field(default_factory=dict)
    opposite: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    each: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    implied: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    uncounted: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def defaults_of(self, settings: Mapping[str, Words]) -> dict[str, Words]:
        """Return the words of what a file leaves out."""
        return {name: tuple(said.split()) for name, said in self.defaults.items() if name not in settings}

    def is_setting(self, key: str, words: Words) -> bool:
        """Tell whether a key with such words is a setting of the vocabulary, or names a file of such."""
        if key in self.each:
            return all(word in self.each[key] for word in words)
        if key in self.words and self._stands(key, words) is None:
            return key in self.files or not (key in self.uncounted or key in self.refused)
        return any(key in names for names in (self.own, self.means, self.opposite, self.words, self.files))

    def _stands(self, key: str, words: Words) -> Mapping[str, str] | None:
        known = self.words[key]
        return known.get(" ".join(words).lower(), known.get(ANY))

    def settings(self, key: str, words: Words) -> Iterator[tuple[str, Words]]:
        """Yield settings of the vocabulary that a key stands for. Raises InputError for a word that is not counted."""
        if key in self.each:
            rows = [self.each[key][word] for word in words if word in self.each[key]]
            yield from ((name, tuple(said.split())) for row in rows for name, said in row.items())
            return
        if not self.is_setting(key, words) or (key in self.files and (
                key not in self.words or self._stands(key, words) is None)):
            return
        if key in self.words:
            stands = self._stands(key, words)
            if stands is None:
                known, word = self.words[key], " ".join(words)
                rule = f"must be one of {', '.join(filter(None, known))}: others are not counted yet"
                raise InputError(key, unmarked(word), rule, nearest_names(word, known))
            yield from ((name, words if said == ANY else tuple(said.split())) for name, said in stands.items())
        elif key in self.opposite:
            yield self.opposite[key], ("false" if words == ("true",) else "true",)
        elif key in self.means:
            yield self.means[key], words
        elif key in self.own:
            yield key, words


@cache
def table(name: str) -> Table:
    """Read the table of a format; what it ``extends`` comes first, its own rows win."""
    with open(FOLDER / f"{name}.toml", "rb") as file:
        return _made(name, tomllib.load(file))


_SETS, _MAPPINGS = ("own", "idle"), ("means", "opposite", "words", "files", "uncounted", "refused")


def _made(name: str, data: Mapping[str, Any]) -> Table:
    """Make a table of its data; a key has one row, so a row of its own takes away what an extended table says of it."""
    mine: dict[str, Any] = {"own": data.get("own", "").split(), "idle": data.get("without_effect", "").split()}
    mine |= {part: data.get(part, {}) for part in _MAPPINGS}
    stated = {key for part in mine.values() for key in part}
    above = [table(other) for other in data.get("extends", ())]
    rows: dict[str, Any] = {
        part: frozenset(mine[part]).union(*(getattr(other, part) - stated for other in above)) for part in _SETS}
    for part in _MAPPINGS:
        kept = {key: row for other in above for key, row in getattr(other, part).items() if key not in stated}
        rows[part] = {**kept, **mine[part]}
    return Table(
        name, data["title"], data.get("vocabulary", ""), data.get("release", ""), data.get("program", ""),
        tuple(map(tuple, data.get("signs", ()))), defaults=data.get("defaults", {}), each=data.get("each", {}),
        implied=data.get("implied", {}), **rows,
    )


def row_of(key: str, rows: Container[str]) -> str | None:
    """Return the row of a key: its own, or one for all below a table that it lies in, such as ``wandb.*``."""
    row, above = key, key
    while row not in rows:
        above = above.rpartition(".")[0]
        if not above:
            return None
        row = f"{above}.*"
    return row


def is_off(key: str, words: Words) -> bool:
    """Tell whether the words of a setting switch it off."""
    off = (*_OFF, "1") if key.endswith(_SIZES) else _OFF
    return not words or (len(words) == 1 and words[0].lower() in off)


@dataclass(frozen=True)
class Sorted:
    """The keys of one file: ``options`` of the vocabulary, and what is left."""

    options: Options
    keys: Mapping[str, tuple[str, ...]]
    idle: tuple[str, ...]
    unknown: tuple[str, ...]


def translated(format: Table, stated: Options) -> Sorted:
    """Sort the keys of a file by its table. Raises InputError for one that is refused."""
    settings: dict[str, Words] = {}
    keys: dict[str, tuple[str, ...]] = {}
    idle, unknown, warnings = [], [], list(stated.warnings)
    for key, words in stated.words.items():
        refused, uncounted = (row_of(key, rows) for rows in (format.refused, format.uncounted))
        if format.is_setting(key, words):
            pass
        elif refused is not None and not is_off(key, words):
            raise stated.error(key, f"must not be given: {format.refused[refused]}")
        elif uncounted is not None and not is_off(key, words):
            warnings.append(f"{stated.shown(key)} is not counted yet: {format.uncounted[uncounted]}")
        elif row_of(key, format.idle) or refused or uncounted:
            idle.append(key)
        else:
            unknown.append(key)
        stands = dict(format.settings(key, words))
        # what a file says itself wins over what another of its words stands for
        settings = {**settings, **stands} if key not in (*format.words, *format.each) else {**stands, **settings}
        keys[key] = tuple(stands)
        above = row_of(key, format.implied)
        if above is not None:
            settings = {**{name: tuple(said.split()) for name, said in format.implied[above].items()}, **settings}
    blamed = {meant: key for key, meant in format.means.items() if meant not in format.own}
    blamed |= {name: key for key, names in reversed(keys.items()) for name in names}
    options = Options({**format.defaults_of(settings), **settings},
                      shown=lambda name: stated.shown(blamed[name]) if name in blamed else name, source=stated.source)
    options.warnings += warnings
    return Sorted(options, keys, tuple(idle), tuple(unknown))
