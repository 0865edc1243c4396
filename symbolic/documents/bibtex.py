"""Data for the BibTeX file beside an exported appendix: one entry for every source that it cites."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from ..sources import SOURCES, Source
from .tex import escape

_CITATION = re.compile(r"\\cite\{([^}]*)\}")
_PERSON = re.compile(r"(?:[A-Z]\.[ -]?)+[A-Z]\w+(?:-\w+)*")
_OTHERS = "et al."
_ARXIV = "arXiv:"


def cited(text: str) -> set[str]:
    """Return the keys of all sources that a text cites."""
    return {key for keys in _CITATION.findall(text) for key in keys.split(",")}


def bibtex(keys: Collection[str]) -> dict[str, Any]:
    """Prepare the entries of some sources."""
    return {"sources": [_entry(item) for item in SOURCES if item.key in keys]}


def authors(text: str) -> str:
    """Return persons as BibTeX separates them; any other author is one name in braces."""
    names = [name.strip() for name in text.split(", ")]
    if not all(_PERSON.fullmatch(name) or name == _OTHERS for name in names):
        return f"{{{escape(text)}}}"
    return " and ".join("others" if name == _OTHERS else escape(name) for name in names)


def _entry(item: Source) -> dict[str, str]:
    return {
        "key": item.key, "authors": authors(item.authors), "title": _title(item), "year": str(item.year),
        "eprint": item.where.removeprefix(_ARXIV) if item.where.startswith(_ARXIV) else "",
        "where": escape(item.where), "url": item.url,
    }


def _title(item: Source) -> str:
    """Return the title, in which a path may break."""
    return escape(item.title).replace("/", r"/\allowbreak ")
