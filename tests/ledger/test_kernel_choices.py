"""Kernel choices by name, one at a time, through every function: an answer or a refusal that names a field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardmath
from shardmath.errors import InputError
from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS

pytestmark = pytest.mark.slow

MODEL, GPU = "llama-3.2-1b", "h100-80gb"
EVERY_OPTION = [
    (name, axis, option) for name in IMPLEMENTATIONS for axis, (_, options) in CHOICES.items()
    for option in options if option in IMPLEMENTATIONS[name]["allowed"].get(axis, options)
    and option != IMPLEMENTATIONS[name]["choices"][axis]
]


@pytest.mark.filterwarnings("ignore:.* keeps nothing on the host:shardmath.errors.InputWarning")
@pytest.mark.parametrize(("name", "axis", "option"), EVERY_OPTION)
def test_explain_answers_or_refuses(name: str, axis: str, option: str) -> None:
    for ranks in (1, 2):
        try:
            found = shardmath.explain(MODEL, GPU, implementation=name, kernels={axis: option}, pipeline_parallel=ranks)
        except InputError:
            continue
        assert found.choices[axis] == option
        assert sum(line.bytes for line in found.peak.lines) == found.peak.total


@pytest.mark.parametrize("ask", [
    lambda **kernels: shardmath.explain(MODEL, GPU, **kernels),
    lambda **kernels: shardmath.fit(MODEL, GPU, solve="seq_length", **kernels),
    lambda **kernels: shardmath.moves(MODEL, GPU, **kernels),
    lambda **kernels: shardmath.sweep(MODEL, GPU, 8, global_batch_size=8, **kernels),
    lambda **kernels: shardmath.recommend(MODEL, GPU, 8, global_batch_size=8, **kernels),
], ids=["explain", "fit", "moves", "sweep", "recommend"])
def test_listed_stages_need_their_list(ask: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=r"^(stages|kernels) = .*listed.*: must"):
        ask(kernels={"stages": "listed"})


def test_a_list_of_layers_goes_with_no_other_kind_of_stages() -> None:
    layout: dict[str, Any] = {"pipeline_parallel": 2, "pipeline_layout": "8,8"}
    plain = shardmath.explain(MODEL, GPU, **layout)
    assert shardmath.explain(MODEL, GPU, kernels={"stages": "listed"}, **layout).ranks == plain.ranks
    with pytest.raises(InputError, match=r"stages = 'even': must be listed .*nearest legal: listed"):
        shardmath.explain(MODEL, GPU, kernels={"stages": "even"}, **layout)


def test_moves_of_an_interleaved_schedule_on_one_stage() -> None:
    found = shardmath.moves(MODEL, GPU, kernels={"schedule": "interleaved"})
    assert found.least.peak_bytes == found.explanation.peak.total
    assert found.least.changes == ()


def test_tensor_parallel_sizes_of_experts_are_an_axis_of_a_sweep() -> None:
    with pytest.raises(InputError, match=r"^expert_tensor_parallel"):
        shardmath.sweep("mixtral-8x7b-v0.1", GPU, 64, global_batch_size=64, expert_tensor_parallel="1,2")
