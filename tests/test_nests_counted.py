"""Compiled nests of real evaluators against every configuration of small spaces, counted in exact fractions."""

from typing import Any

import brute_force
import pytest
from test_nests_random import compare

from shardmath.spaces import Best, Front, Histogram, Part, PowersOfTwo, Space
from shardmath.sweeps.nests import Nest
from shardmath.sweeps.running import run

QUESTIONS = (
    Best("best", ("tensor_parallel * context_parallel * pipeline_parallel", "peak", "-micro_batch_size"), 5),
    Best("per", ("peak",), 2, ("recompute",), "legal"),
    Front("front", ("peak", "-micro_batch_size"), "uncertain"),
    Histogram("sizes", "peak", (2**32, 2**33, 2**34), "legal"),
)
LAYOUT = {
    "tensor_parallel": [1, 2], "pipeline_parallel": [1, 2, 4], "micro_batch_size": [1, 2, 3],
    "sequence_parallel": [0, 1], "recompute": ["none", "full"],
}
SPACES: dict[str, dict[str, Any]] = {
    "saved tensors": {"kernels": {"peak": "saved"}},
    "every moment": {},
    "a larger model": {"model": "llama-3.1-8b"},
    "huggingface": {"implementation": "huggingface", "axes": {"data_parallel": [1, 2, 4], "micro_batch_size": [1, 2],
                                                              "recompute": ["none", "full"]}},
    "a model's shape": {
        "axes": {"num_layers": [8, 16], "hidden_size": [1024, 2048], "ffn_hidden_size": [4096, 5632],
                 "tensor_parallel": [1, 2], "recompute": ["none", "full"], "context_parallel": [1, 2]},
        "derived": {"head_dim": "hidden_size / num_attention_heads"},
    },
    "gpus": {"gpu": None, "axes": {**LAYOUT, "gpu": ["a100-40gb", "h100-80gb"], "num_gpus": PowersOfTwo(4, 8)}},
}


def part_of(name: str) -> Part:
    declared = {
        "axes": LAYOUT, "model": "llama-3.2-1b", "gpu": "a100-40gb", "questions": QUESTIONS,
        "fixed": {"num_gpus": 8, "global_batch_size": 24, "seq_length": 4096}, **SPACES[name],
    }
    if "num_gpus" in declared["axes"] or "data_parallel" in declared["axes"]:
        declared["fixed"] = {key: value for key, value in declared["fixed"].items() if key != "num_gpus"}
    (part,) = Space(**declared).parts()
    return part


def counted(nest: Nest) -> list[brute_force.Row]:
    """Every configuration, counted; conditions in the order in which the nest tries them."""
    part = nest.part
    names = brute_force.conditions(part)
    tried = [names.index(nest.conditions[place]) for place in nest.module.TRIED]
    tried += [place for place in range(len(names)) if place not in tried]
    return [
        brute_force.Row(row.part, row.index, row.labels, row.values,
                        None if row.broken is None else nest.conditions.index(names[row.broken]),
                        row.verdict, row.peak, row.keys)
        for row in brute_force.rows(part, nest.questions, tried)
    ]


@pytest.mark.parametrize("name", SPACES)
def test_every_configuration_of_a_space(name: str) -> None:
    nest = Nest(part_of(name), QUESTIONS)
    rows = counted(nest)
    assert any(row.verdict is not None for row in rows)
    one, two = run(nest, threads=1).answer, run(nest, threads=3).answer
    compare(one, rows, nest)
    compare(two, rows, nest)
