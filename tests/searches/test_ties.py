"""One rule for ties: what is equal, and what a front keeps, against the definition."""

from __future__ import annotations

import numpy as np

from shardmath.search.spaces.ties import SLACK, slack, unbeaten


def test_a_front_keeps_what_no_other_row_beats() -> None:
    draws = np.random.default_rng(7)
    for columns in (1, 2, 3):
        for count in (1, 2, 30, 200):
            keys = draws.integers(0, 12, (count, columns)).astype(np.float64)
            beaten = [any((other <= row).all() and (other < row).any() for other in keys) for row in keys]
            first = [not (keys[:place] == row).all(axis=1).any() for place, row in enumerate(keys)]
            expected = [place for place in np.lexsort(keys.T[::-1]) if first[place] and not beaten[place]]
            assert unbeaten(keys).tolist() == expected


def test_of_equal_rows_the_smallest_number_stays() -> None:
    keys = np.asarray([[2.0, 1.0], [1.0, 2.0], [1.0, 2.0], [2.0, 2.0]])
    assert unbeaten(keys).tolist() == [1, 0]
    assert unbeaten(keys, np.asarray([4, 3, 2, 1])).tolist() == [2, 0]
    assert unbeaten(keys[:0]).tolist() == []


def test_whole_numbers_are_equal_or_not() -> None:
    assert slack(np.asarray([-8.0, 8.0]), np.asarray([False, True])).tolist() == [8 * SLACK, 0.0]
