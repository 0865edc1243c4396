"""The one error that a person's input can cause, and how it is worded.

Everything that a person hands in (a model name, a ``config.json``, a parallel degree, a memory size) is
refused with an :class:`InputError`: one line that names the field, the value, the rule that it breaks and,
where there is one, the nearest legal value. Nothing heavy is imported here, so that a command line can
report a bad input before it loads anything else.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Self

from shardmath.divisors import divisors

__all__ = ["ABSENT", "InputError", "InputWarning", "inside", "listed_by", "nearest_divisors", "nearest_listed",
           "nearest_names", "shortened"]

_SHOWN = 60
"""Characters of a value that a message shows."""

_LINE = 1500
"""Characters of a message: words of a file that a rule names may be as long as the file."""

_LISTED = 600
"""Characters of names that are listed where none is close."""

_FEW = 200
"""Characters of names that are listed although a command lists them."""

_FIELD = 200
"""Characters of a field that a message shows: keys of a file may be as long as the file."""

COMPARED = 100
"""Characters of an unknown name that are compared: difflib's cost grows with the product of lengths."""


class _Absent(Enum):
    ABSENT = "absent"

    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent.ABSENT
"""The value of a field that was not given at all, which differs from a field that was given as null."""


class InputError(ValueError):
    """An input that breaks a rule. Printing it gives exactly one line.

    ``field``: the name under which the person gave the value. ``value``: what was given, as it was.
    ``rule``: what the value must be, as a phrase that starts with "must". ``nearest``: the closest legal
    values as text, or None where closeness has no meaning. A function that finds them is called when they are read.

    Functions of the package raise it; ``except ValueError`` catches it too.

    Example:
        >>> try:
        ...     shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=3)
        ... except shardmath.InputError as error:
        ...     print(error.field, error.value, error.nearest)
        tensor_parallel 3 2 or 4
    """

    def __init__(
        self, field: str, value: object, rule: str, nearest: str | Callable[[], str | None] | None = None,
    ) -> None:
        super().__init__(field, value, rule)
        self.field = field
        self.value = value
        self.rule = rule
        self._nearest = nearest

    @property
    def nearest(self) -> str | None:
        """The closest legal values, found once."""
        if callable(self._nearest):
            self._nearest = self._nearest()
        return self._nearest

    def advised(self, nearest: Callable[[], str | None]) -> Self:
        """Return the same error with other closest legal values.

        Example:
            >>> error = shardmath.InputError("tensor_parallel", 3, "must divide the heads")
            >>> str(error.advised(lambda: "2 or 4"))
            'tensor_parallel = 3: must divide the heads; nearest legal: 2 or 4'
        """
        return type(self)(self.field, self.value, self.rule, nearest)

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), (self.field, self.value, self.rule, self.nearest)

    def __str__(self) -> str:
        line = f"{str(self.field)[:_FIELD]} = {shortened(self.value, self.nearest)}: {self.rule}"
        if self.nearest:
            line += f"; nearest legal: {self.nearest}"
        line = line if len(line) <= _LINE else f"{line[:_LINE - 3]}..."
        # A path or a name may hold line breaks and escape codes of its own.
        return "".join(character if character.isprintable() else "?" for character in line)

    @classmethod
    def from_validation(cls, errors: Sequence[Mapping[str, Any]]) -> "InputError":
        """Put the first error that ``pydantic.ValidationError.errors()`` lists into this form.

        Takes the list and not the exception, so that this module does not import pydantic.

        Example:
            >>> errors = [{"type": "int_type", "loc": ("num_layers",), "input": 32.0, "msg": ""}]
            >>> str(shardmath.InputError.from_validation(errors))
            'num_layers = 32.0: must be an integer; nearest legal: 32'
        """
        first = errors[0]
        context = first.get("ctx", {})
        cause = context.get("error")
        if isinstance(cause, cls):
            return cause  # raised by a validator of ours; pydantic wrapped it
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            return cls(field, ABSENT, "must be given")
        rule = _RULES.get(first["type"], first["msg"].replace("Input should be", "must be")).format(**context)
        nearest = context.get("ge", context.get("le"))
        if first["type"] == "int_type":
            nearest = _meant_integer(first["input"])
        return cls(field, first["input"], rule, None if nearest is None else str(nearest))


class InputWarning(UserWarning):
    """A note on an input that is read otherwise than it may be meant: what is ignored, and what wins.

    The command line prints each on the standard error. In Python, ``warnings`` shows, records or raises them.

    Example:
        >>> warnings.simplefilter("error", shardmath.InputWarning)  # raise notes instead of printing them
    """


_RULES = {
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "extra_forbidden": "must not be given: there is no such field",
}
"""Our words for pydantic's error types where its own do not read well after the value."""


@contextmanager
def inside(part: str) -> Iterator[None]:
    """Raise InputErrors of a part of the input with ``part.field`` for their ``field``."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{part}.{error.field}", error.value, error.rule, error.nearest) from None


def nearest_names(name: str, known: Iterable[str]) -> str:
    """Join the known names that are spelled most like ``name`` by "or"; list all if none is close and they are few."""
    names = sorted({*known})
    if close := close_names(name, names):
        return close
    if len(", ".join(names)) > _LISTED:
        return " or ".join(difflib.get_close_matches(name[:COMPARED].lower(), names, n=3, cutoff=0.0))
    return ", ".join(names)


def nearest_listed(name: str, known: Collection[str], command: str) -> str:
    """Join the known names that are spelled like ``name`` by "or"; where none is, list few or name the command."""
    return close_names(name, known) or listed_by(command, known)


def listed_by(command: str, known: Collection[str]) -> str:
    """List the known names where they are few, else name the command that lists them."""
    every = ", ".join(sorted(known))
    return every if len(every) <= _FEW else f"those of `{command}`, which lists all {len(known)}"


def close_names(name: str, known: Iterable[str]) -> str:
    """Join the known names that are spelled like ``name``, or have its words, by "or"; empty where none does."""
    names, asked = sorted({*known}), name[:COMPARED].lower()
    return " or ".join(difflib.get_close_matches(asked, names, n=3) or _with_words(asked, names) or [
        known for known in names if known and asked.startswith(known)])


def _with_words(asked: str, names: Iterable[str]) -> list[str]:
    """List the names that have all words of ``asked``, or words that begin like them."""
    words = re.split(r"[\s_-]+", asked.strip("-_ "))
    return [name for name in names if words != [""] and all(f"_{word}" in f"_{name}" for word in words)]


def nearest_divisors(value: int, whole: int) -> str:
    """Join the divisors of ``whole`` (at least 1) next below and next above ``value`` by "or"."""
    legal = divisors(whole)
    below = max((d for d in legal if d <= value), default=None)
    above = min((d for d in legal if d >= value), default=None)
    return " or ".join(str(d) for d in dict.fromkeys((below, above)) if d is not None)


def shortened(value: object, nearest: str | None = None) -> str:
    """Cut ``repr`` to what fits in a line; letters that may only look like those of a legal name are shown as codes."""
    try:
        # A string is cut first: it may be a whole file, and repr would copy all of it.
        text = (ascii if nearest else repr)(value[: _SHOWN + 1] if isinstance(value, str) else value)
    except (ValueError, RecursionError):  # an integer of more than 4300 digits; a list nested too deeply
        return f"<{type(value).__name__} too long to show>"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _meant_integer(value: object) -> int | None:
    """Guess the integer that was written as ``4096.0`` or ``"4096"``."""
    if isinstance(value, float) and 1 <= value < 2**31 and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    return None
