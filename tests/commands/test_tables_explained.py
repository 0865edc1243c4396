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
    "megatron": ("llama-3.2-1b", "mixtral-8x7b"), "torchtitan": ("llama-3.1-8b",),
    "huggingface": ("llama-3.2-1b",), "nanotron": ("llama-3.2-1b",),
}
SIZES: dict[str, tuple[int, ...]] = {
    "tensor_parallel": (1, 1, 2, 3), "pipeline_parallel": (1, 1, 2, 4), "context_parallel": (1, 1, 2),
    "data_parallel": (1, 2, 4), "micro_batch_size": (1, 2),
}
#: Sizes of models with experts, and a column of memory.
EXPERTS: dict[str, tuple[int, ...]] = {
    "expert_parallel": (1, 2, 3, 8), "expert_tensor_parallel": (1, 1, 2), "expert_load_percent": (100, 150),
    "context_bytes": (0, 2**30),
}
#: Values for all rows; a GPU of them is another one than usual.
OTHERS: tuple[dict[str, Any], ...] = (
    {}, {"seq_length": 512}, {"node_size": 4}, {"recompute": "full"}, {"global_batch_size": 48}, {"gpu": "a100-40gb"},
    {"gpu": "b200-180gb"}, {"torch_workspace_bytes": 8519680},
)


@pytest.mark.parametrize(("implementation", "model"), [(name, model) for name in MODELS for model in MODELS[name]])
def test_rows_are_what_explain_says(implementation: str, model: str) -> None:
    random = Random(f"{implementation} {model}")
    sizes = {**SIZES, **(EXPERTS if model.startswith("mixtral") else {})}
    rows: list[dict[str, Any]] = [{name: random.choice(sizes[name]) for name in sorted(sizes)} for _ in range(20)]
    table = {name: [row[name] for row in rows] for name in sorted(sizes)}
    legal = 0
    for constants in OTHERS[:4] if model.startswith("mixtral") else OTHERS:  # one evaluator for all of these rows
        common: dict[str, Any] = {"gpu": "h100-80gb", "implementation": implementation, **constants}
        found = evaluate(table, model, **common).read_all().to_pylist()
        for row, answer in zip(rows, found, strict=True):
            if answer["rule"] is not None:
                with pytest.raises(InputError) as refused:
                    explain(model, **common, **row)
                assert f"{refused.value.field} {refused.value.rule}".startswith(answer["rule_text"]), (row, constants)
                continue
            account = explain(model, **common, **row)
            legal += 1
            assert (answer["rule"], answer["verdict"]) == (None, account.peak.verdict), (row, constants)
            ranks = [rank.total for rank in account.ranks]
            totals = ranks[0], ranks[-1], max(ranks)  # a rank with fewer bytes may reserve more
            assert tuple(answer[name] for name in TERMS) == totals, (row, constants)
    assert legal
