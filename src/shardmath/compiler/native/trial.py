"""Loops in the shape of a nest's, over invented numbers: options of the compiler are measured on them.

As in nests, values of a few turns are gathered by their places; then a table is gone through for each turn, most
of whose columns are read again from the nearest cache, and entries within limits are counted.
"""

from typing import Any

import numpy as np

ENTRIES = 32
TURNS = 16
#: Rows of the table, and where each begins.
SHARE = 0
ALWAYS = 32
FIRST = 64
LAST = 96
BETWEEN = 128
#: Rows of the turns.
HELD = 0
SPLIT = 16
SAVED = 32


def larger(left: float, right: float) -> float:
    """Return the larger number."""
    return left if left > right else right


def ceil_div(numerator: Any, denominator: Any) -> float:
    """Return a quotient, rounded up."""
    return np.ceil(numerator / denominator)  # type: ignore[no-any-return]


def sweep(rounds: int, places: Any, block: Any, made: Any, row: Any, limits: Any, counts: Any) -> int:
    """Go through the table ``rounds`` times for each turn and count the entries within limits."""
    evaluated = 0
    for number in range(rounds):
        low = limits[0] + number
        high = limits[1] + number
        for place in range(TURNS):
            turn = places[place]
            held = block[HELD + turn]
            split = block[SPLIT + turn]
            saved = block[SAVED + turn]
            part = ceil_div(low, split)
            kept = held*saved + 2.0*(1.0 - held)*part
            made[HELD + place] = kept + part*split
            made[SPLIT + place] = kept*saved + held
            made[SAVED + place] = 3.0*part + saved
        for place in range(TURNS):
            first = made[HELD + place]
            share = made[SPLIT + place]
            last = made[SAVED + place]
            upto_0 = 0
            upto_1 = 0
            near = False
            for i in range(ENTRIES):
                x1 = row[SHARE + i]
                x2 = row[ALWAYS + i]
                x3 = row[FIRST + i]
                x4 = row[LAST + i]
                x5 = row[BETWEEN + i]
                estimate = larger(first + x1*share + x2, larger(larger(last + x3, first + x4), x5))
                met_0 = (estimate <= low)
                upto_0 += met_0
                met_1 = (estimate <= high)
                upto_1 += met_1
                near |= (estimate <= limits[2])
            counts[0] += upto_0
            counts[1] += upto_1 - upto_0
            counts[2] += near
            evaluated += ENTRIES
    return evaluated
