"""Expert parallelism of Transformers in real processes: bytes after a forward pass and of weights, against the ledger.

How many tokens a rank gets is the router's matter, and rows of received tokens are as many times their number: bytes of
all ranks together are compared with balanced experts. A rank without any token works on one row of zeros.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from oracles.extent import FULL
from oracles.hugging_face import huggingface_experts as families
from oracles.hugging_face.expert_parallel import MAKERS, run_all
from oracles.hugging_face.huggingface import Shape
from oracles.instruments.ledger import ledger
from oracles.instruments.processes import on_ranks

from shardmath.symbolic.implementations import HUGGINGFACE, Implementation
from shardmath.symbolic.parallel.legality import fixed_values

RANKS = [2, 4] if FULL else [2]


def drawn_shape(draw: Random, ranks: int) -> Shape:
    """A shape with as many experts on every rank, and tokens that all ranks of a batch divide."""
    shape = families.for_grouped_products(families.random_shape(draw))
    held = ranks * draw.randint(2, 4)
    return shape | {"E": held, "q": draw.randint(2, 4), "s": 4 * draw.randint(4, 9), "u": 50 + shape["u"]}


def implementation(family: str, divided: int, **choices: str) -> Implementation:
    """Return the ledger's choices for the models of a family."""
    scores = "sigmoid" if family == "dots" else "softmax" if divided else "softmax_all"
    return HUGGINGFACE.with_choices(
        layers="experts", attention="eager", dispatch="huggingface_sent", scores=scores,
        router_precision="bf16" if family == "qwen" else "fp32", **choices)


@pytest.mark.cases(6, 40)
@pytest.mark.parametrize("ranks", RANKS)
def test_alive_after_the_forward_pass(draws: list[Random], ranks: int, tmp_path: Path) -> None:
    """With a batch for every rank, and with one for some or all of them."""
    cases = [["alive", [*MAKERS][place % len(MAKERS)], place, drawn_shape(draw, ranks),
              draw.choice([size for size in (1, 2, 4) if size <= ranks]), draw.random() < 0.3]
             for place, draw in enumerate(draws)]
    results = on_ranks(run_all, ranks, tmp_path, cases)
    for place, (_, family, _, _, shared, checkpointing) in enumerate(cases):
        of_ranks = [each[place] for each in results]
        shape = of_ranks[0]["shape"]
        chosen = implementation(family, shape.pop("divided"), shared_batches="shared" if shared > 1 else "own")
        letters = shape | {"e": ranks, "D": ranks, "xb": shared, "rfull": int(checkpointing)}
        *kept, corrections, dense, experts = ledger(
            chosen, "stage.activation", "stage.buffer", "stage.after_forward", "stage.router.buffer",
            "stage.parameters", "stage.expert_parameters", **letters)
        counted = sum(kept) - corrections  # which are the model's own
        assert all(each["parameters"] == dense + experts for each in of_ranks)
        bytes_of_all = sum(each["kept"] for each in of_ranks)
        if any(each["empty"] for each in of_ranks):
            assert bytes_of_all >= ranks * counted
        else:
            assert bytes_of_all == ranks * counted


@pytest.mark.cases(3, 20)
@pytest.mark.parametrize("ranks", RANKS)
def test_weights_of_every_rank(draws: list[Random], ranks: int, tmp_path: Path) -> None:
    """FSDP2 shares out experts over the ranks that hold the same ones, all else over all ranks, which divide heads.

    The gate of Qwen2's shared experts has one row, which the first rank has whole.
    """
    cases = [["sharded", draw.choice([*MAKERS]), place, drawn_shape(draw, ranks) | {
        "E": 2 * ranks, "d": 2 * ranks * draw.randint(1, 3)},
              draw.choice([size for size in (2, 4) if size <= ranks])] for place, draw in enumerate(draws)]
    results = on_ranks(run_all, ranks, tmp_path, cases)
    for place, (_, family, _, _, expert_ranks) in enumerate(cases):
        shape = results[0][place]["shape"]
        chosen = implementation(family, shape.pop("divided"), data_parallel="fsdp")
        weights, = ledger(chosen, "stage.weight", **fixed_values(chosen) | shape | {"e": expert_ranks, "D": ranks})
        assert results[0][place]["weights"] == weights
        assert all(each[place]["weights"] <= weights for each in results)
