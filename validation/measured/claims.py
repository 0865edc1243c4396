"""Claims of sentences, which numbers decide."""

from __future__ import annotations

from collections.abc import Mapping


def check(claims: Mapping[str, bool]) -> None:
    """Raise ValueError with the claims that do not hold."""
    untrue = [words for words, holds in claims.items() if not holds]
    if untrue:
        raise ValueError(f"not true any more, so the remarks must be written anew: {'; '.join(untrue)}")
