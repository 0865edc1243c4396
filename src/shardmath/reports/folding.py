"""Text and formulas folded to the width of the terminal, without blanks at the ends of lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

#: Where a formula may be folded: after a blank, and in words that are wider than a line after these signs.
_WORDS, _SIGNS = re.compile(r"\S+\s*"), re.compile(r"[^*/(),+-]*(?:\*\*|[*/(),+-])|[^*/(),+-]+")
#: Blanks before what is folded, beyond those of the first line.
_DEEPER = 4


class Terminal(Console):
    """A console whose lines of text have no blanks at their ends."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does, texts without the blanks that folding leaves."""
        folds = not options.get("soft_wrap")
        super().print(*(Sentence(Text(item) if isinstance(item, str) else item)
                        if folds and isinstance(item, str | Text) else item for item in objects), **options)


class Sentence:
    """A text that is folded between words."""

    def __init__(self, text: Text) -> None:
        """Take a text with its styles."""
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the text at this width."""
        for line in self._text.wrap(console, options.max_width):
            line.rstrip()
            yield line


class Formula:
    """A formula that is folded at its operators; the lines that follow stand deeper than the first."""

    def __init__(self, text: str) -> None:
        """Take a line with a formula, with the blanks before it."""
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the formula at this width."""
        yield from map(Text, folded(self._text, options.max_width))


def folded(text: str, width: int) -> list[str]:
    """Fold a formula to lines of at most ``width`` columns at its operators; a longer name stays whole.

    Joined by nothing, but for the blanks before them, the lines are the formula again.
    """
    start = text[:len(text) - len(text.lstrip())]
    lines, line = [], start
    deeper = f"{start}{' ' * _DEEPER}"
    for word in _pieces(text[len(start):], width - len(deeper)):
        if line.strip() and len(f"{line}{word}".rstrip()) > width:
            lines.append(line.rstrip())
            line = deeper
        line += word
    return [*lines, line.rstrip()]


def _pieces(text: str, width: int) -> Iterator[str]:
    """Yield the words of a formula, and the factors of those that no line holds."""
    for word in _WORDS.findall(text):
        yield from _SIGNS.findall(word) if len(word.rstrip()) > width else [word]
