"""A search that was stopped, in words."""

from __future__ import annotations

from collections.abc import Mapping


def stopped(gaps: Mapping[str, float | None]) -> str:
    """Say by which share of their step times others may be faster than the best so far, by where they are."""
    if not gaps:
        return "The search was stopped."
    less = {where: "by how much is not known" if gap is None else f"by at most {gap:.2%} of the step time"
            for where, gap in gaps.items()}
    left = "; ".join(" ".join([*filter(None, [where]), f"others that fit may be faster, {words}"])
                     for where, words in less.items())
    return f"The search was stopped. These are the best so far: {left}."
