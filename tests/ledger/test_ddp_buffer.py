"""The buffers of the distributed optimizer against counted bytes, and the ledger's terms against both."""

from functools import cache
from itertools import pairwise

import pytest
from counted import inline, table, value, values
from hypothesis import given
from hypothesis import strategies as st

from shardmath.symbolic.accounts import build, weight_tensors
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parallel.shards import (
    buffer_layout,
    buffer_size,
    elements_in_shard,
    shard_range,
    tensors_in_shard,
)

pytestmark = pytest.mark.slow

# The counted model; its head counts and widths follow from where the shards of the table end.
MODEL = {"L": 2, "h": 64, "a": 8, "k": 8, "d": 8, "f": 176, "u": 512}
LAYER = (
    ("attention_norm", "weight"), ("attention", "o_proj.weight"), ("attention", "qkv.weight"),
    ("ffn_norm", "weight"), ("swiglu", "gate_up.weight"), ("swiglu", "down.weight"),
)
REGISTERED = (("embedding", "weight"), *LAYER * 2, ("final_norm", "weight"), ("head", "weight"))

ROWS = [
    pytest.param(row, id=f"D{row['dp']} t{row['tp']} rank{row['rank']} zero{row['distributed_optimizer']}"
                 f" {'fp32' if row['grads_fp32'] == '1' else 'bf16'}")
    for row in table("megatron_optimizer")
]
SIZES = st.lists(st.integers(1, 5000), min_size=1, max_size=12)
SHARDS = st.sampled_from((1, 2, 3, 8, 24, 64, 512))


@cache
def registered(tensor_parallel: int) -> list[int]:
    """Elements of the model's parameters on one rank, in the order in which Megatron-Core registers them."""
    known = values({}, "", t=tensor_parallel, v=MODEL["u"], **MODEL)
    elements = {
        (component.name, tensor.name): value(inline(MEGATRON, size), known)
        for component, tensor, size in weight_tensors(MEGATRON) if (component.name, tensor.name) in REGISTERED
    }
    return [int(elements[name]) for name in REGISTERED]


@pytest.mark.parametrize("row", ROWS)
def test_counted_bytes_of_a_rank(row: dict[str, str]) -> None:
    data_parallel, tensor_parallel, rank = int(row["dp"]), int(row["tp"]), int(row["rank"])
    distributed, gradient_bytes = row["distributed_optimizer"] == "1", 4 if row["grads_fp32"] == "1" else 2
    sizes = registered(tensor_parallel)
    buffer, own, tensors = sum(sizes), sum(sizes), len(sizes)
    if distributed:
        shard = data_parallel, rank // tensor_parallel
        buffer, own = buffer_size(sizes, data_parallel), elements_in_shard(sizes, *shard)
        tensors = len(tensors_in_shard(sizes, *shard))
    gradients = gradient_bytes * buffer
    gradient_copy = 4 * own if gradient_bytes == 2 else 0
    ours = {
        "h": MODEL["h"],
        "n_params_rank": sum(sizes),
        "param_bytes": 2 * buffer,
        "grad_bytes": gradients,
        "ddp_ctor_net": gradients + 2 * (buffer - sum(sizes)),
        "opt_ctor_net": 4 * own + 4,
        "opt_step_net": 2 * 4 * own + gradient_copy + 4 * tensors,
        "master_bytes": 4 * own,
        "exp_avg_bytes": 4 * own,
        "exp_avg_sq_bytes": 4 * own,
        "step_bytes": 4 * tensors,
    }
    assert ours == {column: int(row[column]) for column in ours}


@pytest.mark.parametrize("row", ROWS)
def test_terms_are_the_padded_bytes(row: dict[str, str]) -> None:
    layout = {"D": int(row["dp"]), "t": int(row["tp"]), "zero1": int(row["distributed_optimizer"])}
    gradient_bytes, copy = (4, 0) if row["grads_fp32"] == "1" else (2, 4)
    names = ("stage.parameters", "stage.buffer_elements", "stage.shard_elements", "stage.weight", "stage.gradient",
             "stage.optimizer", "stage.gradient_copies.optimizer_step")
    known = values({}, "", w=gradient_bytes, **layout, **MODEL)
    found = evaluate(build(MEGATRON).closure(names), known)
    assert found["stage.parameters"] == int(row["n_params_rank"])
    assert found["stage.buffer_elements"] * 2 == found["stage.weight"] == int(row["param_bytes"])
    assert found["stage.gradient"] == int(row["grad_bytes"])
    # The terms are those of the rank that keeps most: the last shard ends in padding, which has no states.
    own = found["stage.shard_elements"]
    assert 4 * own == max(int(other["master_bytes"]) for other in table("megatron_optimizer") if alike(other, row))
    assert (found["stage.optimizer"], found["stage.gradient_copies.optimizer_step"]) == (12 * own, copy * own)


def alike(one: dict[str, str], other: dict[str, str]) -> bool:
    """True for ranks of the same job."""
    return all(one[column] == other[column] for column in ("dp", "tp", "distributed_optimizer", "grads_fp32"))


@given(SIZES, SHARDS)
def test_shards_cover_every_parameter_once(sizes: list[int], shards: int) -> None:
    assert sum(elements_in_shard(sizes, shards, shard) for shard in range(shards)) == sum(sizes)
    cover = [set(tensors_in_shard(sizes, shards, shard)) for shard in range(shards)]
    assert set().union(*cover) == set(range(len(sizes)))
    assert buffer_size(sizes, shards) % 128 == buffer_size(sizes, shards) % shards == 0


@given(SIZES)
def test_parameters_lie_in_reverse_order_at_aligned_starts(sizes: list[int]) -> None:
    places = buffer_layout(sizes)
    assert [len(place) for place in places] == sizes
    assert all(place.start % 64 == 0 for place in places)
    assert all(0 <= before.start - after.stop < 64 for before, after in pairwise(places))


@pytest.mark.parametrize("shard", [-1, 4])
def test_a_shard_that_does_not_exist_is_refused(shard: int) -> None:
    with pytest.raises(ValueError, match="of 4"):
        shard_range([100], 4, shard)


def test_a_buffer_of_context_parallel_ranks_is_shared_by_all_of_them() -> None:
    names = ("stage.buffer_elements", "stage.optimizer")
    known = values({}, "", D=3, c=4, zero1=1, **MODEL)
    found = evaluate(build(MEGATRON).closure(names), known)
    assert found["stage.buffer_elements"] == buffer_size(registered(1), 12)
    assert found["stage.optimizer"] == found["stage.buffer_elements"]
