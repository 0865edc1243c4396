"""Lists of zeros and ones, one for each layer, as Python writes them: lists, products with numbers, and sums."""

from __future__ import annotations

import re

__all__ = ["MOST_LAYERS", "layer_pattern"]

MOST_LAYERS = 10_000
_PATTERN = re.compile(r"\(?\s*\[([01](?:\s*,\s*[01])*)\s*\]\s*(?:\*\s*([0-9]{1,4}))?\s*\)?")


def layer_pattern(written: str) -> list[bool]:
    """Return the layers with experts: 0 and 1 of a list, of products and sums of lists; never run as code.

    Raises ValueError with the rule.
    """
    inner = written.strip()
    repeat = re.fullmatch(r"\((.*)\)\s*\*\s*([0-9]{1,4})", inner)
    terms, times = ([repeat[1]], int(repeat[2])) if repeat else ([inner], 1)
    terms = terms[0].strip().removeprefix("(").removesuffix(")").split("+") if repeat is None else terms[0].split("+")
    layers: list[bool] = []
    for term in terms:
        part = _PATTERN.fullmatch(term.strip())
        if part is None:
            raise ValueError("must be a number, or a list of 0 and 1 such as ([0]*3+[1]*58)")
        layers += [digit == "1" for digit in re.findall("[01]", part[1])] * int(part[2] or 1)
        if len(layers) * max(times, 1) > MOST_LAYERS:
            raise ValueError(f"must have at most {MOST_LAYERS} layers")
    return layers * times
