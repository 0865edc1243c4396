"""A sequence is at most as long as the table of learned positions."""

from __future__ import annotations

import pytest

from shardmath import explain, sweep
from shardmath.errors import InputError


@pytest.mark.slow
def test_a_sequence_as_long_as_the_table_is_legal() -> None:
    assert explain("gpt2", "h100-80gb", seq_length=1024).peak.total > 0
    assert explain("gpt2", "h100-80gb", seq_length=1022).peak.total > 0


@pytest.mark.slow
@pytest.mark.parametrize("seq_length", [1026, 8192])
def test_a_longer_one_is_refused_with_the_nearest_legal_length(seq_length: int) -> None:
    with pytest.raises(InputError) as refused:
        explain("gpt2", "h100-80gb", seq_length=seq_length)
    assert str(refused.value) == (
        f"seq_length = {seq_length}: must be at most learned_positions: the table has no more rows"
        " (learned_positions = 1024); nearest legal: 1024"
    )


def test_rotary_models_have_no_such_limit() -> None:
    assert explain("llama-3.2-1b", "h100-80gb", seq_length=2 * 131072).inputs["seq_length"] == 262144


@pytest.mark.slow
def test_a_sweep_counts_what_the_rule_refuses() -> None:
    result = sweep("gpt2", "h100-80gb", 2, global_batch_size=2, seq_length=2048, recompute=["none"])
    assert result.legal == 0
    assert sum(rule.count for rule in result.broken if rule.name == "positions") > 0
