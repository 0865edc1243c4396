"""The best layouts of the page in Chromium: those of ``shardmath recommend``, for the same jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest
from browser_answers import SEARCH
from browser_cases import jobs
from oracles.extent import FULL, SEED

from shardmath.commands.recommend.asking import Asked
from shardmath.search.choosing import choose
from shardmath.search.offered import offered
from shardmath.search.sizes import AXES, FOLLOWING, sizes_of

JOBS = 400 if FULL else 50


def apart(front: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """Drop layouts that are faster than the next, smaller one by rounding alone."""
    return [item for item, after in zip(front, [*front[1:], None], strict=True)
            if after is None or after[0] - item[0] > 1e-9 * item[0]]


def test_layouts_are_those_of_recommend(opened: Callable[..., Any], record_property: Any) -> None:
    tab = opened()
    tab.wait_for_selector("html[data-ready]")
    tried = compared = 0
    for job in jobs(Random(SEED), JOBS):
        found = tab.evaluate(SEARCH, "#" + urlencode(job))
        expected = Asked(lambda times, job=job: offered(rank_by="time", **job)).answers
        assert found["refused"] == 0
        assert found["legal"] == expected.legal, job
        assert found["verdicts"] == expected.verdicts.tolist(), job
        front = [(item.keys["step.time"], int(item.keys["peak"])) for item in expected.front("legal")]
        ours, theirs = apart(found["front"]), apart(front)
        assert [peak for _, peak in ours] == [peak for _, peak in theirs], job
        assert [time for time, _ in ours] == pytest.approx([time for time, _ in theirs], rel=1e-9)
        tried += found["legal"]
        chosen = choose(expected)
        if len(theirs) < len(front) or len(ours) < len(found["front"]):
            # Equal times whose sums of floats differ in the last digit: which of them comes first is not decided.
            assert found["choices"][0]["seconds"] == pytest.approx(chosen[0].configuration.keys["step.time"], rel=1e-9)
            continue
        compared += 1
        assert [item["role"] for item in found["choices"]] == [item.role for item in chosen], job
        for item, choice in zip(found["choices"], chosen, strict=True):
            sizes = sizes_of(choice.configuration)
            assert {name: item["sizes"].get(name, 1) for name in AXES} == {name: sizes[name] for name in AXES}, job
            assert item["peak"] == int(choice.configuration.keys["peak"])
    assert compared > JOBS // 2
    record_property("layouts", tried)
    assert FOLLOWING
