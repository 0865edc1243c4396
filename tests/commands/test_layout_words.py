"""Layouts in words and columns: what is left out is what explain and the frameworks take where nothing is said."""

from __future__ import annotations

import pytest

from shardmath.reports.sizes import in_words, shown_sizes

DENSE = {"tensor_parallel": 2, "pipeline_parallel": 1, "context_parallel": 1, "expert_parallel": 1,
         "expert_tensor_parallel": 1, "micro_batch_size": 1}


@pytest.mark.parametrize(("changes", "words"), [
    ({}, "TP 2, PP 1, mbs 1"),
    ({"expert_parallel": 8}, "TP 2, PP 1, EP 8, ETP 1, mbs 1"),
    ({"expert_parallel": 8, "expert_tensor_parallel": 2}, "TP 2, PP 1, EP 8, ETP 2, mbs 1"),
    ({"expert_parallel": 8, "tensor_parallel": 1}, "TP 1, PP 1, EP 8, mbs 1"),
])
def test_the_width_of_experts_is_said_where_it_is_not_that_of_all(changes: dict[str, int], words: str) -> None:
    layout: dict[str, int | str] = {**DENSE, **changes}
    assert in_words(layout) == words
    assert ("expert_tensor_parallel" in shown_sizes([layout])) == ("ETP" in words)
