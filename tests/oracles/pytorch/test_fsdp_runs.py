"""PyTorch's FSDP2 in real processes: bytes of sharded parameters, gradients and AdamW states, against the ledger.

Weights are fp32, the ledger's ``precision="autocast"``. The first dimension of every tensor is padded to a
multiple of the ranks; gradients of a group lie in one padded storage; AdamW's moments are not padded, so the
first rank, whose part is never cut short, has what the ledger says and the others have no more.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from oracles.extent import FULL
from oracles.hugging_face.huggingface import random_shape
from oracles.instruments.ledger import ledger
from oracles.instruments.processes import on_ranks
from oracles.pytorch.fsdp_freed import run as freed
from oracles.pytorch.fsdp_freed import run_all as run_freed
from oracles.pytorch.fsdp_lora import run_all as run_adapted
from oracles.pytorch.fsdp_run import run_all

from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parallel.legality import fixed_values

ADAPTED = HUGGINGFACE.with_choices(data_parallel="fsdp", adapters="all_linear")
FSDP = HUGGINGFACE.with_choices(data_parallel="fsdp", precision="autocast")


@pytest.mark.cases(3, 20)
@pytest.mark.parametrize("ranks", [2, 3, 4] if FULL else [2])
def test_sharded_bytes_of_every_rank(draws: list[Random], ranks: int, tmp_path: Path) -> None:
    shapes = [shape_for(draw, ranks) for draw in draws]
    for rank, results in enumerate(on_ranks(run_all, ranks, tmp_path, shapes)):
        for shape, found in zip(shapes, results, strict=True):
            elements, weights, gradients, states = ledger(
                FSDP, "stage.parameters", "stage.weight", "stage.gradient", "stage.optimizer",
                **shape, **fixed_values(FSDP) | {"D": ranks},
            )
            assert found["elements"] == elements
            assert found["parameters"] == weights
            assert found["gradients"] == gradients
            assert found["steps"] == 4 * found["tensors"]
            assert found["moments"] == states if rank == 0 else found["moments"] <= states


@pytest.mark.cases(4, 20)
@pytest.mark.parametrize("ranks", [2, 3, 4] if FULL else [2])
def test_sharded_bytes_with_adapters(draws: list[Random], ranks: int, tmp_path: Path) -> None:
    """Frozen weights are sharded with the adapters' own, which alone have gradients and moments; in fp32 or in bf16."""
    shapes = [shape_for(draw, ranks) | {"rl": draw.randint(1, 9), "tied": 0, "fp32": place % 2}
              for place, draw in enumerate(draws)]
    for rank, results in enumerate(on_ranks(run_adapted, ranks, tmp_path, shapes)):
        for shape, found in zip(shapes, results, strict=True):
            adapted = ADAPTED.with_choices(precision="mixed") if shape["fp32"] else ADAPTED
            sizes = {letter: size for letter, size in shape.items() if letter != "fp32"}
            trained, frozen, weights, gradients, states = ledger(
                adapted, "stage.parameters", "stage.frozen_parameters", "stage.weight", "stage.gradient",
                "stage.optimizer", **sizes, **fixed_values(adapted) | {"D": ranks},
            )
            assert (found["trained"], found["frozen"]) == (trained, frozen)
            assert found["parameters"] == weights
            assert found["gradients"] == gradients
            assert found["moments"] == states if rank == 0 else found["moments"] <= states


@pytest.mark.cases(3, 20)
def test_gradients_that_the_backward_pass_frees(draws: list[Random], tmp_path: Path) -> None:
    """Alone one parameter's gradient is alive when it is updated, with FSDP2 those of its unit."""
    shapes = [shape_for(draw, 2) | {"tied": 0} for draw in draws]
    sharded = on_ranks(run_freed, 2, tmp_path, shapes)[0]
    for shape, units in zip(shapes, sharded, strict=True):
        alone = HUGGINGFACE.with_choices(precision="autocast", optimizer_step="backward")
        names = [f"stage.one_gradient.{site}_backward" for site in ("layer", "head", "embedding")]
        layer, *ends = ledger(alone, *names, **shape)
        assert freed(shape, False) == {"layers": layer, "ends": ends[0]}
        assert ends[0] == ends[1]
        for units_of, unit in zip(("root", "ends"), units, strict=True):
            shared = alone.with_choices(data_parallel="fsdp", units=units_of)
            names = ["unit_gradients.layer_backward", "unit_gradients.last_reduce", "static", "weight", "optimizer",
                     "input", "buffer", *(["unit_gradients.head_backward"] if units_of == "ends" else [])]
            terms = ledger(shared, *(f"stage.{name}" for name in names), **shape, **fixed_values(shared) | {"D": 2})
            assert (unit["layers"], unit["ends"]) == (terms[0], max(terms[1:2] + terms[7:]))
            assert terms[2] == sum(terms[3:7])  # no gradient lasts


def shape_for(draw: Random, ranks: int) -> dict[str, int]:
    """Draw sizes; vocabulary and hidden_size are padded, but k d and f divide.

    The ledger pads the fused QKV and gate-up projections, while Hugging Face's modules are sharded one by one;
    where their parts divide both are the same.
    """
    shape = random_shape(draw)
    return {**shape, "d": 2 * ranks * draw.randint(1, 3), "f": ranks * draw.randint(1, 30)}
