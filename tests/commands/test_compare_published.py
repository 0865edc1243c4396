"""Published formulas beside counted ones: amounts that add up, and the tensors that a source leaves out."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from shardmath import explain
from shardmath.commands.compare import compare
from shardmath.commands.compare.published import PublishedSide

GPU = "h100-80gb"
LLAMA = {"model": "llama-3.1-8b", "tensor_parallel": 4, "pipeline_parallel": 2}
GPT = {"model": "megatron-22b", "tensor_parallel": 8, "seq_length": 2048, "hidden_dropout": 1, "attention_dropout": 1}


@cache
def _beside(options: tuple[tuple[str, Any], ...]) -> dict[str, PublishedSide]:
    return {item.name: item for item in compare(gpu=GPU, against=["published"], **dict(options)).published}


def beside(**options: Any) -> dict[str, PublishedSide]:
    return _beside(tuple(options.items()))


@pytest.mark.slow
def test_sets_are_those_about_the_model() -> None:
    assert set(beside(**LLAMA)) == {"fujii2024", "fujii2024_norms", "korthikanti2022", "megatron_lm"}
    assert set(beside(**GPT)) == {"korthikanti2022"}


@pytest.mark.slow
@pytest.mark.parametrize("options", [LLAMA, GPT], ids=["llama", "gpt"])
def test_summands_add_up_to_the_difference_where_there_are_any(options: dict[str, Any]) -> None:
    found = [term for item in beside(**options).values() for term in item.terms]
    stated = [term for term in found if term.summands]
    assert len(stated) > len(found) // 4
    for term in stated:
        assert sum(one.amount for one in term.summands) == term.difference


def test_estimates_are_those_of_explain() -> None:
    found, shown = beside(**LLAMA), explain(gpu=GPU, **LLAMA)
    assert shown.published
    for item in shown.published:
        assert found[item.name].total == item.total
        assert found[item.name].counted == shown.ranks[0].total


def test_activations_alone_stand_beside_counted_activations() -> None:
    shown = explain(gpu=GPU, **LLAMA).ranks[0].by_role
    item = beside(**LLAMA)["korthikanti2022"]
    assert item.counted == shown["activation"] + shown["input"]


def test_the_tensors_that_a_source_leaves_out_are_named() -> None:
    terms = {term.term: term for term in beside(**LLAMA)["fujii2024"].terms}
    (one,) = terms["fujii2024.attention_activations"].summands
    assert one.tensors == ("attention.logsumexp",)
    assert one.amount == -4 * 8192 * 32
    (silu,) = terms["fujii2024.mlp_activations"].summands
    assert silu.tensors == ()
    assert silu.amount == 2 * 8192 * 14336


@pytest.mark.slow
def test_another_kernel_has_another_difference() -> None:
    found = beside(**LLAMA, kernels=None)["fujii2024"]
    eager = {item.name: item for item in compare(
        gpu=GPU, against=["published"], **LLAMA, kernels={"swiglu": "eager"}).published}["fujii2024"]
    differences = [{term.term: term.difference for term in item.terms} for item in (found, eager)]
    assert differences[0]["fujii2024.mlp_activations"] == 2 * 8192 * 14336
    assert differences[1]["fujii2024.mlp_activations"] == 0


def test_assumed_are_only_values_that_the_configuration_has_not() -> None:
    terms = {term.term: term for term in beside(**LLAMA)["fujii2024"].terms}
    assert terms["fujii2024.layer_parameters"].assumed == {"t": 1, "sp": 0}
    assert terms["fujii2024.total"].assumed == {}
