"""Spaces become parts: every configuration is the one that ``explain`` accounts for, or that it refuses."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import brute_force
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath import Gpu, InputError, Model, explain, load_model
from shardmath.input.parameters import OTHERS, model_values
from shardmath.search.spaces import Constraint, DivisorsOf, Multiples, Part, PowersOfTwo, Range, Space, read_space
from shardmath.search.spaces.conditions import SHAPE_RULES
from shardmath.search.spaces.symbols import SHAPE, SWITCHES
from shardmath.search.spaces.texts import Texts

EXAMPLE = Path(__file__).parents[2] / "docs" / "spaces" / "llama-70b.toml"
JOB = {"num_gpus": 16, "global_batch_size": 48, "seq_length": 4096}
SPACES: dict[str, Space] = {
    "layouts": Space(
        {"tensor_parallel": PowersOfTwo(1, 16), "context_parallel": (1, 3), "pipeline_parallel": (1, 2, 5),
         "micro_batch_size": Range(1, 4), "recompute": ("none", "mlp", "full")},
        "llama-3.2-1b", "a100-40gb", fixed=JOB,
    ),
    "clusters": Space(
        {"gpu": ("a100-40gb", "h200"), "num_gpus": (8, 24), "seq_length": Multiples(3072, 1, 10_000),
         "pipeline_parallel": DivisorsOf("num_layers", at_most=4), "node_size": (4, 8)},
        "llama-3.2-1b", derived={"global_batch_size": "3 * 2**20 / seq_length"}, fixed={"tensor_parallel": 8},
    ),
    "shapes": Space(
        {"hidden_size": (1024, 1536), "num_attention_heads": (8, 12), "num_kv_heads": (2, 3, 8), "num_layers": (6, 7),
         "vocab_size": (50_257,), "pipeline_parallel": (1, 3)},
        "llama-3.2-1b", "a100-40gb", fixed={**JOB, "num_gpus": 6, "tied_embeddings": 0},
        derived={"head_dim": "hidden_size / num_attention_heads", "ffn_hidden_size": "4 * hidden_size"},
    ),
    "experts": Space(
        {"tensor_parallel": (1, 2), "expert_parallel": DivisorsOf("num_experts"), "data_parallel": (2, 8),
         "virtual_pipeline": (1, 2), "pipeline_parallel": (1, 4)},
        "mixtral-8x7b", "h200", fixed={"global_batch_size": 64, "seq_length": 4096, "distributed_optimizer": 0},
    ),
    "families": Space(
        {"implementation": ("megatron", "nanotron", "torchtitan"), "model": ("smollm2-1.7b", "llama-3.2-1b"),
         "tensor_parallel": (1, 2), "sequence_parallel": (0, 1), "gradient_bytes": (2, 4)},
        gpu="a100-40gb", fixed={**JOB, "recompute": "full"},
    ),
    "memories": Space(
        {"gpu_memory_gib": (16, 24), "num_gpus": (4, 6), "recompute_mlp": (0, 1), "recompute_full": (0, 1),
         "hidden_dropout": (0, 1)},
        "llama-3.2-1b", fixed={"global_batch_size": 24, "tensor_parallel": 2}, gradients="bf16",
        constraints=(Constraint("something", "recompute_mlp + recompute_full > 0"),),
    ),
}


def explained(part: Part, row: brute_force.Row, space: Space) -> int:
    """The peak that ``explain`` gives for a configuration, in bytes; raises InputError where that does."""
    values = {name: int(value) for name, value in row.values.items() if value.denominator == 1}
    name = row.labels.get("model", space.model)
    shape = {
        symbol: bool(values[symbol]) if isinstance(value, bool) else values[symbol]
        for symbol, value in load_model(str(name)).model_dump().items() if symbol in SHAPE and symbol in values
    }
    model = Model(**{**load_model(str(name)).model_dump(), **shape})
    gpu = row.labels.get("gpu", space.gpu)
    device = Gpu.custom(values["gpu_memory"] / 2**30) if gpu is None else Gpu.named(str(gpu))
    own = {symbol: values[symbol] for symbol in (
        "seq_length", "micro_batch_size", "global_batch_size", "tensor_parallel", "context_parallel",
        "pipeline_parallel", "num_gpus", "vocab_multiple", "node_size")}
    regions = "+".join(switch.removeprefix("recompute_") for switch in SWITCHES if values[switch])
    others = {symbol: values[symbol] for axes in (space.axes, space.fixed) for symbol in axes if symbol in OTHERS}
    found = explain(
        model, device, **own, recompute=str(row.labels.get("recompute", regions or "none")),
        implementation=str(row.labels.get("implementation", "megatron")),
        sequence_parallel=bool(values["sequence_parallel"]), data_parallel=values.get("data_parallel"),
        distributed_optimizer=bool(values["distributed_optimizer"]),
        gradients={2: "bf16", 4: "fp32"}[values["gradient_bytes"]], **others,
    )
    assert all(found.inputs[symbol] == value for symbol, value in values.items() if symbol in found.inputs)
    return found.peak.total


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_configurations_are_those_of_explain(space: Space) -> None:
    declared = {constraint.name for constraint in space.constraints}
    kinds = set()
    for part in space.parts():
        found = list(brute_force.rows(part))
        for row in random.Random(part.size).sample(found, min(60, len(found))):
            name = None if row.broken is None else brute_force.conditions(part)[row.broken]
            kinds.add(name)
            whole = all(row.values[symbol].denominator == 1 for symbol in space.derived)
            if name is None:
                assert whole
                assert explained(part, row, space) == row.peak
            elif whole and name not in declared:
                with pytest.raises(InputError):
                    explained(part, row, space)
    assert None in kinds
    assert len(kinds) > 1


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_last_axis_runs_fastest(space: Space) -> None:
    for number, part in enumerate(space.parts()):
        rows = list(brute_force.rows(part))
        assert part.number == number
        assert part.size == len(rows)
        assert [row.labels for row in rows] == [part.labels_at(row.index) for row in rows]
        assert [axis.name for axis in part.axes] == [name for name in space.axes if name != "implementation"]
        assert part.labels_at(0) | {part.axes[-1].name: part.axes[-1].labels[1 % part.axes[-1].size]} == (
            part.labels_at(1) if part.axes[-1].size > 1 else part.labels_at(0))
        with pytest.raises(IndexError):
            part.labels_at(part.size)


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_input_has_exactly_one_source(space: Space) -> None:
    for part in space.parts():
        sources = [*part.fixed, *part.derived, *(name for axis in part.axes for name in axis.values)]
        assert len(sources) == len(set(sources))
        assert set(part.evaluator.terms.INPUTS) | {"gpu_memory"} <= set(sources)


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_spaces_and_parts_can_be_sent_to_another_process(space: Space) -> None:
    assert pickle.loads(pickle.dumps(space)) == space
    assert pickle.loads(pickle.dumps(space.parts())) == space.parts()


@pytest.mark.slow
def test_models_of_one_family_share_a_part() -> None:
    space = Space(
        {"implementation": ("megatron", "huggingface"), "expert_parallel": (1, 2), "num_gpus": (2,),
         "model": ("llama-3.2-1b", "mixtral-8x7b", "llama-3.1-8b")},
        gpu="h200", fixed={"global_batch_size": 8},
    )
    parts = space.parts()
    assert [(part.labels["implementation"], part.axes[-1].labels) for part in parts] == [
        (name, models) for name in ("megatron", "huggingface")
        for models in (("llama-3.2-1b", "llama-3.1-8b"), ("mixtral-8x7b-v0.1",))
    ]
    dense = [constraint.text for constraint in parts[0].constraints]
    assert "expert_parallel == 1" in dense
    assert "expert_parallel == 1" not in [constraint.text for constraint in parts[1].constraints]
    assert parts[1].fixed["expert_tensor_parallel"] == parts[1].fixed["tensor_parallel"] == 1
    llama, large = load_model("llama-3.2-1b"), load_model("llama-3.1-8b")
    shape = {name: (model_values(llama)[name], model_values(large)[name]) for name in SHAPE}
    assert parts[0].axes[-1].values == shape


def test_derived_symbols_come_in_an_order_in_which_they_are_known() -> None:
    space = Space(
        {"tensor_parallel": (1, 2, 3)}, "llama-3.2-1b", "h200",
        derived={"global_batch_size": "data_parallel * micro_batch_size * 4", "micro_batch_size": "tensor_parallel - 1",
                 "num_layers": "8 * 2", "num_gpus": "24"},
    )
    part, = space.parts()
    assert part.fixed["num_layers"] == 16
    assert list(part.derived)[-1] == "global_batch_size"
    assert set(part.derived) == {"data_parallel", "sequence_parallel", "micro_batch_size", "global_batch_size"}
    texts = {constraint.name: constraint.text for constraint in part.constraints}
    assert texts["micro_batch_size"] == "micro_batch_size >= 1"
    assert texts["data_parallel"] == "divides(tensor_parallel * context_parallel * pipeline_parallel, num_gpus)"
    rows = list(brute_force.rows(part))
    assert [row.values["global_batch_size"] for row in rows] == [0, 48, 64]
    assert rows[0].broken == [constraint.name for constraint in part.constraints].index("micro_batch_size")
    assert rows[0].values["micro_batch_size"] == 0


def test_divisors_of_another_axis_are_kept_in_pairs() -> None:
    part, = Space(
        {"tensor_parallel": DivisorsOf("num_gpus", at_least=2, at_most=6), "num_gpus": (4, 6)},
        "llama-3.2-1b", "h200", fixed={"global_batch_size": 12},
    ).parts()
    assert part.axes[0].labels == (2, 3, 4, 6)
    assert part.constraints[0] == Constraint("tensor_parallel", "divides(tensor_parallel, num_gpus)", automatic=True)
    refused = [row.labels for row in brute_force.rows(part) if row.broken == 0]
    assert [tuple(labels.values()) for labels in refused] == [(3, 4), (4, 6), (6, 4)]


@pytest.mark.process
def test_reading_and_resolving_a_space_is_light() -> None:
    code = (
        "import sys; from shardmath.search.spaces import read_space; parts = read_space(sys.argv[1]).parts();"
        "print(sum(part.size for part in parts), *sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code, EXAMPLE], capture_output=True, text=True, check=True)
    size, *loaded = result.stdout.split()
    assert int(size) == sum(part.size for part in read_space(EXAMPLE).parts()) > 100_000
    assert not {"sympy", "numba", "numpy", "jinja2", "yaml"} & set(loaded)


_DENSE = load_model("llama-3.2-1b").model_dump()
_SMALL = st.integers(0, 4)


@pytest.mark.slow
@given(st.fixed_dictionaries({
    "num_attention_heads": st.integers(1, 6), "num_kv_heads": st.integers(1, 4), "head_dim": st.integers(1, 5),
    "num_layers": st.integers(1, 6), "num_experts": _SMALL, "moe_topk": _SMALL, "moe_ffn_hidden_size": _SMALL,
    "shared_expert_ffn_hidden_size": _SMALL, "shared_expert_gate": st.integers(0, 1), "expert_groups": _SMALL,
    "expert_group_topk": _SMALL, "first_dense_layers": _SMALL, "moe_layer_step": st.integers(1, 4),
    "q_lora_rank": _SMALL, "kv_lora_rank": _SMALL, "qk_rope_head_dim": _SMALL, "v_head_dim": _SMALL,
    "num_mtp_layers": st.integers(0, 1), "qkv_bias": st.integers(0, 1), "qk_norm": st.integers(0, 1),
    "linear_bias": st.integers(0, 1),
}), st.sets(st.sampled_from(("num_experts", "kv_lora_rank", "expert_groups", "linear_bias")), min_size=2))
def test_shapes_obey_the_rules_of_models(shape: dict[str, int], without: set[str]) -> None:
    shape |= dict.fromkeys(without, 0)
    if "num_experts" in without:
        shape |= dict.fromkeys(("moe_topk", "moe_ffn_hidden_size", "shared_expert_ffn_hidden_size",
                                "shared_expert_gate", "expert_groups", "expert_group_topk"), 0)
    if "kv_lora_rank" in without:
        shape |= {"q_lora_rank": 0, "v_head_dim": 0}
    assert _is_a_model(shape) == _obeys({**model_values(load_model("llama-3.2-1b")), **shape})


def _is_a_model(shape: Mapping[str, Any]) -> bool:
    switches = {name: bool(shape[name]) for name in ("shared_expert_gate", "qkv_bias", "qk_norm", "linear_bias")}
    try:
        Model(**{**_DENSE, **shape, **switches})
    except InputError:
        return False
    return True


def _obeys(shape: Mapping[str, int]) -> bool:
    texts = Texts(SHAPE)
    return all(texts.value(texts.condition(name, text), shape) for name, text in SHAPE_RULES)
