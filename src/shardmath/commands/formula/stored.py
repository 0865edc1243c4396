"""Terms of the package as ``make derive`` wrote them down: read without SymPy."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from shardmath import generated


@cache
def stored_terms() -> dict[str, dict[str, tuple[str, str]]]:
    """Return unit and meaning of all terms by implementation or publication and by name, each with its own kernels."""
    terms: dict[str, dict[str, tuple[str, str]]] = {}
    for line in _text().splitlines():
        if line.startswith("[\""):
            name, owners, record = json.loads(line.removesuffix(","))
            for owner in owners:
                terms.setdefault(owner, {})[name] = record["unit"], record["meaning"]
    return terms


def _text() -> str:
    return (Path(str(generated.__file__)).parent / "formulas.jsonl").read_text(encoding="utf-8")


def stored(owner: str, name: str) -> dict[str, Any] | None:
    """Return the record of the term ``name`` of an implementation with its own kernels, or of a publication.

    None if the package has no such term: with other kernels, and by a name that nobody knows.
    """
    text = _text()
    head, start = f"\n[{json.dumps(name)}, [", 0
    while (start := text.find(head, start)) >= 0:
        end = text.index("\n", start + 1)
        _, owners, record = json.loads(text[start:end])
        if owner in owners:
            return dict(record)
        start = end
    return None
