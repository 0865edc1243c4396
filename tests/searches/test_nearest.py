"""Nearest legal values: what an error names is put in, and the configuration must keep every rule."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from shardmath import InputError
from shardmath.account.configured import configured

SIZES = (1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 16)
#: Arguments that are drawn, with their values; None leaves one out.
DRAWN: dict[str, tuple[Any, ...]] = {
    "tensor_parallel": SIZES, "pipeline_parallel": SIZES, "context_parallel": (None, None, None, None, *SIZES),
    "num_gpus": (None, 8, 12, 16, 60, 64, 100), "data_parallel": (None, None, None, None, 2, 3),
    "micro_batch_size": (None, 1, 2, 3, 0), "global_batch_size": (None, None, 30, 64, 96, 1000),
    "seq_length": (None, None, 512, 1000, 4097), "sequence_parallel": (None, None, None, True, False),
    "data_parallel_replicas": (None, None, None, 2, 3), "gradients": (None, None, "fp32", "bf16"),
    "distributed_optimizer": (None, None, True, False), "recompute": (None, None, "full", "mlp"),
}
EXPERTS: dict[str, tuple[Any, ...]] = {
    "expert_parallel": (None, 1, 2, 3, 5, 8), "expert_tensor_parallel": (None, 1, 2, 3),
    "expert_capacity_percent": (None, None, 125), "expert_load_percent": (None, None, 150),
}
#: Models by implementation, with what else is drawn for them.
CASES: dict[str, dict[str, dict[str, tuple[Any, ...]]]] = {
    "megatron": {
        "llama-3.1-8b": {"zero_stage": (None, None, None, 1, 3), "expert_parallel": (None, None, None, 2)},
        "mixtral-8x7b": EXPERTS, "gpt2": {}, "llama-3.2-1b": {"node_size": (4, 6)},
    },
    "torchtitan": {"llama-3.1-8b": {"sharded_gradients": (None, None, 0)}},
    "huggingface": {"llama-3.2-1b": {"zero_stage": (None, 0, 1, 2, 3)}},
    "nanotron": {"llama-3.2-1b": {}},
}
INTERLEAVED: dict[str, tuple[Any, ...]] = {
    "virtual_pipeline": (2, 3, 4), "microbatch_group": (None, 3, 8), "pipeline_parallel": (1, 2, 3, 4),
}


def alternatives(error: InputError) -> list[dict[str, Any]]:
    """The sets of changes that an error names: "2 or 4", "num_gpus 8 or 16", "2 or c 8", "a 2 with num_gpus 8, b 1"."""
    assert error.nearest is not None
    if " with " in error.nearest:
        pairs = [part.split(" ") for part in re.split(" with |, ", error.nearest)]
        return [{name: read(value) for name, value in pairs}]
    name, sets = error.field, []
    for part in error.nearest.split(" or "):
        *named, value = part.split(" ")
        name = " ".join(named) or name
        sets.append({name: read(value)})
    return sets


def read(value: str) -> Any:
    return int(value) if re.fullmatch(r"-?\d+", value) else value


def refusal(**arguments: Any) -> InputError | None:
    try:
        configured(gpu="h100-80gb", **arguments)
    except InputError as error:
        return error
    return None


def drawn(random: Random, choices: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    values = {name: random.choice(choices[name]) for name in sorted(choices) if random.random() < 0.5}
    return {name: value for name, value in values.items() if value is not None}


def check(arguments: dict[str, Any]) -> str | None:
    """Put in all that the error of ``arguments`` names; return how it names it, or None where there is no error."""
    error = refusal(**arguments)
    if error is None:
        return None
    if error.nearest is None:
        return "nothing"
    for changes in alternatives(error):
        assert refusal(**{**arguments, **changes}) is None, (str(error), arguments)
    return "several" if " with " in error.nearest else "other" if " " in error.nearest.split(" or ")[0] else "own"


@pytest.mark.slow
@pytest.mark.parametrize(("implementation", "model"), [(name, model) for name in CASES for model in CASES[name]])
def test_named_values_are_legal_together(implementation: str, model: str) -> None:
    random = Random(f"{implementation} {model}")
    kinds: list[str | None] = []
    for _ in range(25):
        sizes = drawn(random, {**DRAWN, **CASES[implementation][model]})
        kinds.append(check({"model": model, "implementation": implementation, **sizes}))
    assert kinds.count("own") > 2, kinds
    assert kinds.count("several") > 2, kinds
    assert kinds.count("nothing") < len(kinds) / 10, kinds


@pytest.mark.slow
def test_chunks_of_a_rank_and_groups_too() -> None:
    """An interleaved schedule has formulas of its own, which one chunk per rank does not need."""
    random = Random("interleaved")
    kinds = [check({"model": "llama-3.1-8b", **drawn(random, {**DRAWN, **INTERLEAVED})}) for _ in range(12)]
    assert len({*kinds} & {"own", "other", "several"}) > 1
    assert "nothing" not in kinds


#: Arguments of llama-3.1-8b, and the end of the error's line.
NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "its own values": ({"tensor_parallel": 3}, "nearest legal: 2 or 4"),
    "not what breaks the next rule": ({"pipeline_parallel": 5, "num_gpus": 24},
                                      "nearest legal: pipeline_parallel 4 or 8"),
    "another argument": ({"tensor_parallel": 3, "num_gpus": 16}, "nearest legal: tensor_parallel 2 or 4"),
    "the batch": ({"num_gpus": 16, "global_batch_size": 30}, "nearest legal: global_batch_size 16 or 32"),
    "several": ({"tensor_parallel": 3, "pipeline_parallel": 7, "num_gpus": 16},
                "nearest legal: tensor_parallel 2 with pipeline_parallel 8"),
    "the stage that was asked for": ({"zero_stage": 3, "implementation": "nanotron"},
                                     "nearest legal: 1"),
    "the option that was asked for": ({"gradients": "bf16", "implementation": "nanotron"},
                                      "nearest legal: fp32"),
    "one chunk for a prime number of layers": (
        {"model": "deepseek-v3", "tensor_parallel": 8, "pipeline_parallel": 8, "virtual_pipeline": 2,
         "expert_parallel": 8, "num_gpus": 64}, "nearest legal: pipeline_parallel 1 with virtual_pipeline 1"),
    "one chunk for what the model has": (
        {"model": "deepseek-v2-lite", "pipeline_parallel": 3, "virtual_pipeline": 3},
        "nearest legal: virtual_pipeline 1"),
    "a misspelt mode": ({"recompute": "core_atention"}, "nearest legal: core_attention"),
    "meant as a number": ({"tensor_parallel": "3", "num_gpus": 16}, "nearest legal: 2 or 4"),
    "out of range": ({"seq_length": 10**12, "context_parallel": 3}, "nearest legal: 2147483646"),
    "no formula of the model": ({"model": "mixtral-8x7b", "kernels": {"precision": "autocast"},
                                 "implementation": "huggingface"}, "are not counted yet"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", NAMED)
def test_what_an_error_names(case: str) -> None:
    arguments, end = NAMED[case]
    error = refusal(**{"model": "llama-3.1-8b", **arguments})
    assert str(error).endswith(end), str(error)


@pytest.mark.slow
@pytest.mark.parametrize(("kernels", "cause"), [
    ({"optimizer": "muon"}, "megatron and optimizer = muon"),
    ({"optimizer": "muon", "swiglu": "eager"}, "megatron and optimizer = muon"),
])
def test_the_choice_of_kernels_is_named_that_leaves_one_value(kernels: dict[str, str], cause: str) -> None:
    error = refusal(model="llama-3.1-8b", distributed_optimizer=True, kernels=kernels)
    assert error is not None
    assert error.rule == f"must be 0 with {cause}"


def test_values_are_sought_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches ask for thousands of illegal configurations, and read no error of them."""
    monkeypatch.setattr("shardmath.account.configured.nearest_legal", lambda *_: pytest.fail("sought"))
    error = refusal(model="llama-3.1-8b", tensor_parallel=3)
    assert error is not None
    assert (error.field, error.value) == ("tensor_parallel", 3)
