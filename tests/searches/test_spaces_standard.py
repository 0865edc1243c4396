"""The standard space has the configurations of ``sweep``, and brute force answers what ``sweep`` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import brute_force
import pytest

from shardmath import Gpu, InputError, sweep
from shardmath.models.model import load_model
from shardmath.search.offered import offered
from shardmath.search.spaces import Best, Space
from shardmath.search.spaces.standard import layouts

SMALL = {"model": "llama-3.2-1b", "gpu": Gpu.custom(24), "num_gpus": 16, "global_batch_size": 32, "seq_length": 4096}
SHORT = {**SMALL, "tensor_parallel": [1, 2, 16], "pipeline_parallel": [4, 2], "micro_batch_size": [1, 2, 4]}
CHUNKS = {**SHORT, "virtual_pipeline": [1, 2]}
FEW = {**SHORT, "micro_batch_size": [2], "context_parallel": [1, 2], "recompute": ["none", "full"]}
QUESTIONS: dict[str, dict[str, Any]] = {
    "few degrees": CHUNKS,
    "top 3": {**SHORT, "top": 3, "recompute": ["full", "mlp"]},
    "bf16 gradients": {
        **CHUNKS, "context_parallel": [1, 2], "gradients": "bf16", "distributed_optimizer": False, "vocab_multiple": 37,
    },
    "nodes of 2": {**CHUNKS, "context_parallel": [1, 4], "node_size": 2, "zero_stage": 0, "sequence_parallel": [1]},
    "huggingface": {**SMALL, "implementation": "huggingface", "context_parallel": [1, 2], "tensor_parallel": [1, 2]},
    "torchtitan's pipelines": {**FEW, "implementation": "torchtitan", "schedule": "interleaved"},
    "chunks": {**FEW, "virtual_pipeline": [1, 2]},
    "experts": {
        "model": "mixtral-8x7b", "gpu": "h200", "num_gpus": 16, "global_batch_size": 16, "seq_length": 4096,
        "tensor_parallel": [1, 2], "context_parallel": [1], "pipeline_parallel": [2, 4], "virtual_pipeline": [1, 2],
        "micro_batch_size": [1],
        "recompute": ["none", "core_attention"], "recompute_moe_act": 1,
    },
    "nothing is legal": {**SHORT, "tensor_parallel": [3], "pipeline_parallel": [32]},
}


def _split(question: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    rest = dict(question)
    return tuple(rest.pop(name) for name in ("model", "gpu", "num_gpus")), rest


def _shown(row: brute_force.Row) -> dict[str, Any]:
    axes = ("tensor_parallel", "context_parallel", "pipeline_parallel", "micro_batch_size", "sequence_parallel",
            "recompute")
    return {name: row.labels[name] for name in axes} | {"peak_bytes": row.peak}


def _answered(space: Space, rows: list[brute_force.Row], name: str) -> dict[Any, list[dict[str, Any]]]:
    question = next(question for question in space.questions if question.name == name)
    assert isinstance(question, Best)
    return {group: [_shown(row) for row in found] for group, found in brute_force.best(rows, question).items()}


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_brute_force_answers_what_sweep_does(question: dict[str, Any]) -> None:
    (model, *arguments), rest = _split(question)
    result = sweep(model, *arguments, **rest)
    space, = offered(load_model(model), *arguments, **rest)
    part, = space.parts()
    assert part.size == result.tried
    assert result.values == {name: value for name, value in part.fixed.items() if name != "pipeline_rank"}

    conditions = brute_force.conditions(part)
    tried = [conditions.index(rule.name) for rule in result.broken]
    untried = [place for place in range(len(conditions)) if place not in tried]  # they follow from what is derived
    rows = list(brute_force.rows(part, space.questions, order=[*tried, *untried]))
    broken = brute_force.broken(rows)
    assert broken == {place: rule.count for place, rule in zip(tried, result.broken, strict=True) if rule.count}

    assert [brute_force.verdicts(rows)[verdict] for verdict in range(3)] == list(result.verdicts.values())
    expected = [{name: getattr(found, name) for name in _shown(rows[0])} for found in result.best]
    assert _answered(space, rows, "best").get((), []) == expected
    by_mode = {group[0]: found for group, found in _answered(space, rows, "best_by_recompute").items()}
    assert by_mode == {
        mode: [{name: getattr(found, name) for name in _shown(rows[0])}]
        for mode, found in result.best_by_recompute.items()
    }
    smallest = _answered(space, rows, "smallest").get((), [])
    assert smallest == [
        {name: getattr(found, name) for name in _shown(rows[0])} for found in (result.smallest,) if found is not None
    ]


@pytest.mark.slow
def test_the_axes_come_in_the_order_of_sweeps() -> None:
    part, = layouts("mixtral-8x7b", "h100-80gb", 64, global_batch_size=256, virtual_pipeline=[1, 2]).parts()
    assert [axis.name for axis in part.axes] == [
        "tensor_parallel", "context_parallel", "pipeline_parallel", "virtual_pipeline", "expert_parallel",
        "micro_batch_size", "sequence_parallel", "recompute",
    ]
    part, = layouts("llama-3.1-70b", "h100-80gb", 512, global_batch_size=1024).parts()
    assert part.size == 110_000


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"top": 0}, "top"), ({"top": True}, "top"), ({"top": 1.5}, "top"), ({"tensor_parallel": []}, "tensor_parallel"),
     ({"micro_batch_size": [0]}, "micro_batch_size"), ({"sequence_parallel": [2]}, "sequence_parallel"),
     ({"recompute": []}, "recompute"), ({"recompute": ["half"]}, "recompute"), ({"num_gpus": 0}, "num_gpus"),
     ({"global_batch_size": 1.5}, "global_batch_size"), ({"implementation": "none"}, "implementation"),
     ({"unknown": 1}, "parameter")],
    ids=str,
)
def test_what_is_not_legal_is_refused(wrong: dict[str, Any], field: str) -> None:
    arguments, rest = _split({**SHORT, **wrong})
    with pytest.raises(InputError) as caught:
        layouts(*arguments, **rest).parts()
    assert caught.value.field == field
