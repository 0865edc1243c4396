"""Texts that share most of their lines, packed: every line once, compressed, as characters that HTML leaves alone."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any


class Lines:
    """Lines of texts, each kept once; a text is the places of its lines."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __iter__(self) -> Any:
        return iter(self._places)

    def of(self, text: str) -> list[int]:
        """Return the text as runs of lines that follow one another: the place of the first, and how many there are."""
        runs: list[int] = []
        for line in text.splitlines():
            place = self._places.setdefault(line, len(self._places))
            if runs and place == runs[-2] + runs[-1]:
                runs[-1] += 1
            else:
                runs += [place, 1]
        return runs

    def place(self, line: str) -> int:
        """Return the place of one line."""
        return self._places.setdefault(line, len(self._places))


def packed(data: Mapping[str, Any]) -> str:
    """Plain data as text for a page: JSON, compressed, in base 64. The page reads it with a DecompressionStream."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()
