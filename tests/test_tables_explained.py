"""Random rows of a table against ``explain`` of the same arguments, with the defaults of both, refusals included."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from shardmath import InputError, evaluate, explain

pytestmark = pytest.mark.slow

pytest.importorskip("pyarrow")
TERMS = ("first.total", "last.total", "peak")
MODELS = {
    "megatron": ("llama-3.2-1b",), "torchtitan": ("llama-3.1-8b",),
    "huggingface": ("llama-3.2-1b",), "nanotron": ("llama-3.2-1b",),
}
SIZES: dict[str, tuple[int, ...]] = {
    "tensor_parallel": (1, 1, 2, 3), "pipeline_parallel": (1, 1, 2, 4), "context_parallel": (1, 1, 2),
    "data_parallel": (1, 2, 4), "micro_batch_size": (1, 2),
}
OTHERS: tuple[dict[str, Any], ...] = (
    {}, {"seq_length": 512}, {"node_size": 4}, {"recompute": "full"}, {"global_batch_size": 48},
)


@pytest.mark.parametrize(("implementation", "model"), [(name, model) for name in MODELS for model in MODELS[name]])
def test_rows_are_what_explain_says(implementation: str, model: str) -> None:
    random = Random(f"{implementation} {model}")
    # FSDP2 with a pipeline is another program than without, so that a table has rows of one of them.
    fixed: tuple[dict[str, Any], ...] = ({"pipeline_parallel": 1}, {"pipeline_parallel": 2})
    fixed = fixed if implementation == "torchtitan" else ({},)
    columns = SIZES.keys() - fixed[0].keys()
    rows: list[dict[str, Any]] = [{name: random.choice(SIZES[name]) for name in sorted(columns)} for _ in range(30)]
    table = {name: [row[name] for row in rows] for name in sorted(columns)}
    legal = 0
    for constants in [{**one, **other} for one in fixed for other in OTHERS]:
        common: dict[str, Any] = {"implementation": implementation, **constants}
        found = evaluate(table, model, "h100-80gb", **common).read_all().to_pylist()
        for row, answer in zip(rows, found, strict=True):
            if answer["rule"] is not None:
                with pytest.raises(InputError) as refused:
                    explain(model, "h100-80gb", **common, **row)
                assert f"{refused.value.field} {refused.value.rule}".startswith(answer["rule_text"]), (row, constants)
                continue
            account = explain(model, "h100-80gb", **common, **row)
            legal += 1
            assert (answer["rule"], answer["verdict"]) == (None, account.peak.verdict), (row, constants)
            totals = account.ranks[0].total, account.ranks[-1].total, account.peak.total
            assert tuple(answer[name] for name in TERMS) == totals, (row, constants)
    assert legal
