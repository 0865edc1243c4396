"""Columns of a table in the terminal: how they come to fit its width. A number is never cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from rich.cells import cell_len
from rich.text import Text

#: Text of a cell, with colours or without.
Cell: TypeAlias = str | Text
#: Least width of the last column, which wraps, before others go.
_LEAST = 18
#: Blanks on each side of a column where there is room.
_PADDING = 1
#: Where a name may be cut: behind a sign, before a letter. Numbers stay whole.
_CUT = re.compile(r"(?<=[_/.+-])(?=[^\W\d])")


@dataclass(frozen=True)
class Column:
    """A column with its title and cells, flush ``right`` or left.

    ``width`` is its own where it needs one; where it ``wraps``, what is too wide goes on in the next line, and where it
    ``folds``, a word does too.
    """

    title: str
    right: bool
    cells: list[Cell] = field(default_factory=list)
    width: int | None = None
    wraps: bool = False
    folds: bool = False

    @property
    def texts(self) -> list[str]:
        """The title and all cells as plain text."""
        return [self.title, *map(str, self.cells)]


def fitted(columns: Sequence[Column], spare: Sequence[str], width: int) -> tuple[list[Column], int, list[str]]:
    """Return the columns as they fit, the blanks on each side of one, and the titles of columns that had to go.

    Columns come closer, then wrap, then those that are ``spare`` go, the last one first. Then names are cut at their
    signs, and where that is not enough the other columns go too, but for the first, which is folded.
    """
    kept, left, padding = _last_wraps(columns), list(spare), _PADDING
    gone = set[str]()
    while not _fits(kept, padding, width):
        if padding:
            padding = 0
        elif (folded := _folded(kept, width)) is not None:
            kept = folded
            break
        elif left:
            gone.add(left.pop())
            kept = _last_wraps([column for column in kept if column.title not in gone])
        elif (cut := _cut(kept, width)) is not None:
            kept = cut
            break
        elif titles := [column.title for column in kept[1:] if column.title]:
            left.append(titles[-1])
        else:
            kept = [replace(column, wraps=True, folds=True) for column in kept]
            break
    return kept, padding, [column.title for column in columns if column.title in gone]


def _last_wraps(columns: Sequence[Column]) -> list[Column]:
    return [*columns[:-1], replace(columns[-1], wraps=True)]


def _fits(columns: Sequence[Column], padding: int, width: int) -> bool:
    *others, last = map(_longest_text, columns)
    edges = 2 + len(others) * (1 + 2 * padding)
    return sum(others) + max(min(last, _LEAST), _longest_word(columns[-1])) + edges <= width


def _folded(columns: Sequence[Column], width: int) -> list[Column] | None:
    """Get the columns with those flush right wrapped between words, and the last one; None where that is not enough.

    Titles are cut at their signs too.
    """
    wide = [_longest_text(column) for column in columns]
    narrow = [_longest_word(column) if column.right else natural
              for column, natural in zip(columns, wide, strict=True)]
    narrow[-1] = max(_longest_word(columns[-1]), min(wide[-1], _LEAST))
    return _sized(columns, width, narrow, (wide,))


def _cut(columns: Sequence[Column], width: int) -> list[Column] | None:
    """Get the columns with names cut at their signs; None where that is not enough."""
    words, texts = ([measure(column) for column in columns] for measure in (_longest_word, _longest_text))
    return _sized(columns, width, [_longest_part(column) for column in columns], (words, texts))


def _sized(
    columns: Sequence[Column], width: int, narrow: Sequence[int], wider: Iterable[Sequence[int]],
) -> list[Column] | None:
    """Get the columns as wide as ``narrow``, and as each of ``wider`` while there is room; None where that is too wide.

    A column flush right becomes as wide as that, or stays as it is.
    """
    left = width - sum(narrow) - len(columns) - 1
    if left < 0:
        return None
    sizes = list(narrow)
    for wide in wider:
        for place in (-1, *range(len(columns) - 1)):
            more = max(0, wide[place] - sizes[place])
            if columns[place].right and more > left:
                continue
            more = min(more, left)
            sizes[place] += more
            left -= more
    return [_within(column, size) for column, size in zip(columns, sizes, strict=True)]


def _within(column: Column, size: int) -> Column:
    """Return a column of a width, with the names cut that are wider."""
    cells = [_lines(cell, size) if isinstance(cell, str) else cell for cell in column.cells]
    return replace(column, title=_lines(column.title, size), cells=cells, width=size, wraps=True, folds=True)


def _lines(cell: str, size: int) -> str:
    """Return a text with line breaks at signs in words that are wider than ``size``."""
    indent = cell[:len(cell) - len(cell.lstrip())]
    room = size - len(indent)
    if max(map(len, cell.split()), default=0) <= room:
        return cell
    return re.sub(r"\S+", lambda word: f"\n{indent}".join(_packed(_CUT.split(word[0]), room)), cell)


def _packed(parts: Sequence[str], size: int) -> list[str]:
    """Return as few lines as have the parts, each as long as it may be."""
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part) > size:
            lines.append("")
        lines[-1] += part
    return lines


def _longest_text(column: Column) -> int:
    return max(cell_len(line) for text in column.texts for line in text.split("\n"))


def _longest_word(column: Column) -> int:
    """Return the width of the longest word, with the title cut at its signs."""
    title, *cells = column.texts
    return max(map(len, [*_CUT.sub(" ", title).split(), *" ".join(cells).split()]), default=0)


def _longest_part(column: Column) -> int:
    return max(map(len, _CUT.sub(" ", " ".join(column.texts)).split()), default=0)
