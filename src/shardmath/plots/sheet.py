"""Styles of drawn elements as one style sheet: a page that allows no inline style can hold its digest."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SHEET = re.compile(r"\s*<style[^>]*>(.*?)</style>", re.DOTALL)
_STYLE = re.compile(r'\sstyle="([^"]*)"')


def in_one_sheet(drawings: Sequence[str]) -> tuple[list[str], str]:
    """Return SVG texts with a class in the place of every style, and the style sheet of these classes.

    The style sheets of the drawings come first, for what is in a drawing: a class overrules them as a style did.
    """
    rules: dict[str, None] = {}
    classes: dict[str, str] = {}

    def named(style: re.Match[str]) -> str:
        return f' class="{classes.setdefault(style[1], f"drawn-{len(classes)}")}"'

    sheets = []
    for drawing in drawings:
        rules |= dict.fromkeys(f"svg {rule.strip()}" for rule in _SHEET.findall(drawing))
        sheets.append(_STYLE.sub(named, _SHEET.sub("", drawing)))
    return sheets, "\n".join([*rules, *(f".{name} {{ {style} }}" for style, name in classes.items())])
