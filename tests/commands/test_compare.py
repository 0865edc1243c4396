"""Comparisons: differences of terms as sums over tensors, to the byte, and the causes that are named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardmath
from shardmath.account.accounting import explanation
from shardmath.account.configured import configured
from shardmath.commands.compare import Comparison, compare
from shardmath.commands.compare.tensors import Rank
from shardmath.errors import InputError

LLAMA, GPU = "llama-3.1-8b", "h100-80gb"
#: Llama 3.1 8B: hidden size, width of the MLP, width of keys, vocabulary, layers.
HIDDEN, WIDTH, KEYS, VOCABULARY, LAYERS = 4096, 14336, 1024, 128256, 32

POWERS = (1, 2, 4, 8)
LAYERS_OF = {LLAMA: 32, "llama-3.2-1b": 16, "qwen3-8b": 36}
#: Degrees and recompute modes of each implementation; pipeline degrees must divide the layers as well.
DEGREES: dict[str, dict[str, tuple[Any, ...]]] = {
    "megatron": {"tensor_parallel": POWERS, "pipeline_parallel": POWERS, "context_parallel": (1, 1, 2),
                 "recompute": ("none", "full", "core_attention")},
    "torchtitan": {"tensor_parallel": POWERS, "pipeline_parallel": (1,), "context_parallel": (1, 1, 2),
                   "recompute": ("none", "full")},
    "huggingface": {"tensor_parallel": (1,), "pipeline_parallel": (1,), "context_parallel": (1,),
                    "recompute": ("none", "full")},
    "nanotron": {"tensor_parallel": POWERS, "pipeline_parallel": POWERS, "context_parallel": (1,),
                 "recompute": ("none", "full")},
}


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Draw arguments of a legal configuration."""
    model = draw(st.sampled_from(tuple(LAYERS_OF)))
    implementation = draw(st.sampled_from(("megatron", *DEGREES)))
    degrees = {**DEGREES[implementation]}
    degrees["pipeline_parallel"] = tuple(p for p in degrees["pipeline_parallel"] if LAYERS_OF[model] % p == 0)
    return {
        "model": model, "implementation": implementation,
        **{name: draw(st.sampled_from(values)) for name, values in degrees.items()},
        "data_parallel": draw(st.sampled_from((1, 3, 8))), "micro_batch_size": draw(st.integers(1, 3)),
        "seq_length": draw(st.sampled_from((1024, 768))),
    }


def against(other: Mapping[str, Any] | str, **options: Any) -> Comparison:
    return compare(LLAMA, GPU, against=[other], **options)


def by_line(found: Comparison) -> dict[tuple[str, str], int | Fraction]:
    """The sums of the only difference's tensors by component and role, where they are not 0."""
    sums: dict[tuple[str, str], int | Fraction] = defaultdict(int)
    for tensor in found.differences[0].tensors:
        sums[tensor.component, tensor.role] += tensor.bytes
    return {key: size for key, size in sums.items() if size}


@pytest.mark.slow
@given(configurations(), configurations(), st.booleans())
@settings(max_examples=25)
def test_tensors_add_up_to_every_term_of_random_pairs(
    one: dict[str, Any], two: dict[str, Any], first_rank: bool,
) -> None:
    found = compare(gpu=GPU, against=[two], rank=0 if first_rank else None, **one)
    assert by_line(found) == {
        (term.component, term.role): term.bytes[1] - term.bytes[0] for term in found.terms if term.differs
    }
    totals = [side.account.total for side in found.sides]
    assert found.differences[0].bytes == totals[1] - totals[0] == sum(by_line(found).values())
    for place, total in enumerate(totals):
        assert sum(term.bytes[place] for term in found.terms) == total


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"model": "deepseek-v2-lite", "expert_parallel": 2, "data_parallel": 2},
    {"model": LLAMA, "pipeline_parallel": 2, "pipeline_layout": "15,17"},
    {"model": LLAMA, "implementation": "huggingface", "kernels": {"optimizer": "adafactor"}},
    {"model": LLAMA, "implementation": "huggingface", "kernels": {"base_weights": "nf4"}, "lora_rank": 16},
    {"model": LLAMA, "tensor_parallel": 2, "hidden_dropout": 1},
], ids=lambda options: "-".join(map(str, options)))
def test_parts_add_up_to_every_line(options: dict[str, Any]) -> None:
    configuration = configured(gpu=GPU, **options)
    for account in explanation(configuration).ranks:
        sums: dict[str, int | Fraction] = defaultdict(int)
        for part in Rank(configuration.job, account).parts:
            sums[part.line] += part.bytes
        assert sums == {line.term: line.bytes for line in account.lines}


def test_weights_have_the_sizes_of_their_shapes() -> None:
    """An independent count, matrix by matrix."""
    found = against({"tensor_parallel": 2}, tensor_parallel=4, pipeline_parallel=2, rank=0)
    weights = {
        "attention.qkv.weight": (HIDDEN + 2 * KEYS) * HIDDEN, "attention.o_proj.weight": HIDDEN * HIDDEN,
        "swiglu.gate_up.weight": 2 * WIDTH * HIDDEN, "swiglu.down.weight": WIDTH * HIDDEN,
    }
    of_layers = {name: (2 * size * LAYERS // 2 // 4, 2 * size * LAYERS // 2 // 2) for name, size in weights.items()}
    rows = [-(-VOCABULARY // (128 * ranks)) * 128 for ranks in (4, 2)]  # Megatron pads to a multiple of 128 t
    ends = {"embedding.weight": (2 * rows[0] * HIDDEN, 2 * rows[1] * HIDDEN)}
    tensors = {f"{item.component}.{item.tensor}": (item.before, item.after)
               for item in found.differences[0].tensors if item.role == "weight"}
    assert tensors == {**ends, **of_layers}


def causes(found: Comparison) -> dict[str, tuple[str, ...]]:
    return {f"{item.role} {item.component}.{item.tensor}": item.causes for item in found.differences[0].tensors}


@pytest.mark.slow
def test_a_kernel_is_the_only_cause_of_its_tensor() -> None:
    found = against({"kernels": {"swiglu": "eager"}}, tensor_parallel=4)
    assert causes(found) == {"activation swiglu.silu": ("kernel swiglu",)}
    assert found.differences[0].bytes == 2 * 8192 * WIDTH // 4 * LAYERS


def test_recompute_is_the_cause_of_what_it_drops_and_of_what_it_keeps() -> None:
    found = causes(against({"recompute": "full"}, tensor_parallel=2))
    assert found["activation swiglu.gate"] == found["activation layer_input.input"] == ("recompute_full",)


def test_each_tensor_names_the_sizes_that_its_formula_has() -> None:
    found = causes(against({"pipeline_parallel": 2, "micro_batch_size": 2}, tensor_parallel=2, data_parallel=2))
    assert found["weight attention.qkv.weight"] == ("pipeline_parallel",)
    assert "micro_batch_size" in found["activation attention.q"]
    assert "tensor_parallel" not in {name for names in found.values() for name in names}


def test_what_is_gone_at_another_moment_is_said_to_be() -> None:
    found = against({"pipeline_parallel": 2}, tensor_parallel=2)
    moments = {side.account.site for side in found.sides}
    assert len(moments) == 2
    assert "moment" in {name for names in causes(found).values() for name in names}


def test_another_framework_differs_by_kernels_and_by_itself() -> None:
    found = causes(against({"implementation": "torchtitan"}, tensor_parallel=4))
    assert found["activation swiglu.silu"] == ("kernel swiglu",)
    assert found["weight attention.qkv.weight"] == found["weight attention.q.weight"] == ("kernel projections",)
    assert found["weight attention.o_proj.weight"] == ("implementation",)


def test_causes_are_listed_among_the_changes() -> None:
    found = against({"model": "llama-3.2-1b", "implementation": "nanotron", "pipeline_parallel": 2})
    assert {name for names in causes(found).values() for name in names} <= {item.name for item in found.changes}


def test_the_same_twice_differs_in_nothing() -> None:
    found = against({}, tensor_parallel=2)
    assert (found.changes, found.differences[0].tensors, found.differences[0].bytes) == ((), (), 0)


def test_changes_have_a_value_of_every_side() -> None:
    found = compare(LLAMA, GPU, tensor_parallel=4, against=[{"tensor_parallel": 2}, {"gpu": "a100-80gb"}])
    values = {item.name: item.values for item in found.changes}
    assert values["tensor_parallel"] == (4, 2, 4)
    assert values["gpu"] == (GPU, GPU, "a100-80gb")
    assert [side.name for side in found.sides] == ["A", "B", "C"]
    assert found.sides[1].asked == "tensor_parallel = 2"


def test_it_is_in_the_package() -> None:
    assert shardmath.compare is compare
    assert shardmath.Comparison is Comparison


@pytest.mark.parametrize(("options", "field"), [
    ({"against": [{"tensor_parallel": 3}]}, "B.tensor_parallel"),
    ({"against": [{}, {"recompute": "some"}]}, "C.recompute"),
    ({"against": []}, "against"),
    ({"against": ["publsihed"]}, "against"),
    ({"against": [{}] * 26}, "against"),
    ({"against": [{"pipeline_parallel": 2}], "rank": 1}, "rank"),
    ({"against": [{}], "rank": -1}, "rank"),
    ({"against": ["published"], "implementation": "nanotron"}, "against"),
    ({"against": [{}], "tensor_parallel": 3}, "tensor_parallel"),
])
def test_bad_input_is_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        compare(LLAMA, GPU, **options)
    assert refused.value.field == field
