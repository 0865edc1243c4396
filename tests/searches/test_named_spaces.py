"""The named spaces of the page by branch and bound: about as many boxes as it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracles.extent import FULL

from shardmath.search.boxes.answered import bounded
from shardmath.search.spaces import read_space

pytestmark = pytest.mark.slow

SPACES = Path(__file__).parents[2] / "docs" / "spaces"
#: Boxes of each space at most, twice those of the page. Looser bounds of a formula take more, and so do worse first
#: answers or a worse order.
CEILINGS = {
    "llama-405b-16384": 220_000, "llama-70b-512": 700_000, "deepseek-v3-2048": 1_200_000, "shapes-70b-512": 4_000_000,
}


@pytest.mark.parametrize("name", list(CEILINGS) if FULL else [*CEILINGS][:1])
def test_a_named_space_takes_no_more_boxes_than_it_may(name: str) -> None:
    space = read_space(str(SPACES / f"{name}.toml"))
    result = bounded(space.parts(), space.questions, most=CEILINGS[name])
    assert result.complete, sum(cut.bounded for cut in result.cuts)
