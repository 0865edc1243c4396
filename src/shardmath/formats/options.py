"""Settings of a program by name, read one by one: numbers, switches and words, each checked when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from shardmath.errors import ABSENT, InputError, nearest_names
from shardmath.formats.scripts.expansion import marked, unmarked

Read = TypeVar("Read")
_TRUTH = {"true": True, "false": False}


class Options:
    """Settings as somebody gave them: the words of each by name, and how to show a name (``--name``).

    ``asked`` collects the names that were asked for, ``warnings`` sentences about what is not as they say. ``choices``
    has what a variable without a value follows from: the name of another one, and its possible words.
    """

    def __init__(self, words: Mapping[str, tuple[str, ...]], shown: Callable[[str], str] = lambda name: f"--{name}",
                 source: str = "", choices: Mapping[str, tuple[str, Sequence[str]]] | None = None) -> None:
        self.words, self.shown, self.source, self.choices = dict(words), shown, source, choices or {}
        self.asked: set[str] = set()
        self.warnings: list[str] = []

    def __contains__(self, name: str) -> bool:
        self.asked.add(name)
        return name in self.words

    def error(self, name: str, rule: str, nearest: str | None = None) -> InputError:
        """Return the error of a setting, with its value as it was given."""
        words = self.words.get(name)
        value = ABSENT if words is None else unmarked(" ".join(words)) if words else True
        return InputError(self.shown(name), value, rule, nearest)

    def is_on(self, name: str) -> bool:
        """Tell whether a switch is on: without a word, or with true. Raises InputError for other words."""
        if name not in self:
            return False
        words = self.words[name]
        if any(marked(word) for word in words):
            absent = " ".join(map(unmarked, words))
            self.warnings.append(f"{absent} after {self.shown(name)} has no value: taken as empty")
            return True
        if len(words) > 1 or (words and words[0].lower() not in _TRUTH):
            raise self.error(name, "must have no value, or true or false")
        return _TRUTH[words[0].lower()] if words else True

    def all(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return all words of a setting, ``default`` if it is absent. Raises InputError for a word without a value."""
        if name not in self:
            return default
        for word in self.words[name]:
            for missing in marked(word):
                chosen, (first, *others) = self.choices.get(missing, (missing, ["..."]))
                rule = f"must have a value: give one with --set {chosen}={first}"
                if others:
                    rule = f"{rule}, or with {', '.join(others)}"
                if missing.startswith("$"):
                    rule = ("must not be the output of a command: give it with --set"
                            f" {self.shown(name).removeprefix('--')}=...")
                raise self.error(name, rule)
        return self.words[name]

    def word(self, name: str, default: str = "", legal: Iterable[str] = (), why: str = "") -> str:
        """Return the only word of a setting, ``default`` if it is absent. Raises InputError unless it is ``legal``."""
        words = self.all(name, (default,))
        if len(words) != 1:
            raise self.error(name, "must have one value")
        known = tuple(legal)
        if known and words[0] not in known:
            raise self.error(name, f"must be one of {', '.join(known)}{why}", nearest_names(words[0], known))
        return words[0]

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return the integer of a setting; ``default`` if it is absent or null. Raises InputError for other words."""
        word = self.word(name, "null")
        if word.lower() in ("null", "none"):
            return default
        try:
            return _whole(word)
        except ValueError:
            raise self.error(name, "must be an integer") from None

    def size(self, name: str, default: int) -> int:
        """Return the integer of a setting that always has one."""
        number = self.number(name, default)
        return default if number is None else number

    def needed(self, name: str) -> int:
        """Return the integer of a setting. Raises InputError if it is absent."""
        number = self.number(name)
        if number is None:
            raise self.error(name, "must be given")
        return number

    def real(self, name: str, default: float) -> float:
        """Return the number of a setting. Raises InputError for other words."""
        word = self.word(name, str(default))
        try:
            number = float(word)
        except ValueError:
            raise self.error(name, "must be a number") from None
        if not abs(number) < 2**53:
            raise self.error(name, "must be a number of sane size")
        return number


def _whole(word: str) -> int:
    """Return the integer that a word says, also as 4096.0 or 1e3. Raises ValueError for anything else."""
    if len(word) > 30 or not word.isascii():
        raise ValueError(word)
    try:
        return int(word.replace("_", " "))
    except ValueError:
        number = float(word)
        if not abs(number) < 2**53 or not number.is_integer():
            raise ValueError(word) from None
        return int(number)
