"""Full recompute in Megatron-Core's own model: what is alive when a layer, or a group, has been recomputed.

The moment is the one at which Megatron-Core's checkpoint starts the backward pass of what it has recomputed. Two
counters look at it: autograd's hooks at saved tensors, and the live storages, where the output made again and the
gradient of the residual stream are seen too. Both count a storage once, so an input that the checkpoint and the
first norm keep in the same memory is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from counted import values
from megatron.core import parallel_state
from megatron.core.tensor_parallel import random as megatron_random
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.instruments.storages import storages_in
from oracles.instruments.traced import summed_rows
from oracles.megatron_core.megatron_cpu import Batch, config, forward, gpt_model, one_rank
from oracles.megatron_core.megatron_layouts import VARIANTS, random_layout, tables


class _Torch(SimpleNamespace):
    """The module ``torch`` with some names replaced."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def when_recomputed(look: Callable[[], None]) -> Iterator[None]:
    """Call ``look`` whenever Megatron-Core's checkpoint has recomputed something and goes back through it."""

    def backward(*arguments: Any) -> None:
        look()
        torch.autograd.backward(*arguments)

    autograd = SimpleNamespace(**{**vars(torch.autograd), "backward": backward})
    before = megatron_random.torch
    megatron_random.torch = _Torch(autograd=autograd)
    try:
        yield
    finally:
        megatron_random.torch = before


def random_job(draw: Random, variant: str, method: str) -> dict[str, int]:
    """Draw a layout, layers of its stages, and how many of them are recomputed, or from one input.

    Tied matrices are on one stage, where autograd holds the head's gradient until the embedding has its own.
    """
    shape = random_layout(draw, variant) | {"rfull": 1}
    layers = draw.randint(1, 4)
    counts = {"each": [1], "block": range(1, layers + 2),
              "uniform": [group for group in range(1, layers + 1) if layers % group == 0]}
    tied = shape["tied"] * (shape["p"] == 1)
    return shape | {"tied": tied, "L": layers * shape["p"], "rn": draw.choice(list(counts[method]))}


@pytest.mark.cases(10, 150)
@pytest.mark.parametrize("method", ["each", "uniform", "block"])
@pytest.mark.parametrize("variant", ["fused", "local"])
def test_layers_that_are_recomputed(draw: Random, variant: str, method: str) -> None:
    kernels, implementation = VARIANTS[variant]
    shape = random_job(draw, variant, method)
    in_flight = draw.randint(1, shape["p"] - shape["r"])
    # Layers that are not recomputed are the last of a stage, and freed by now.
    passed = max(0, shape["L"] // shape["p"] - shape["rn"]) if method == "block" else 0
    found: list[tuple[int, int]] = []
    with one_rank(shape, draw):
        model = gpt_model(shape, config(shape, method), kernels)
        for one in model.parameters():
            one.grad = torch.zeros_like(one)
        batches = [Batch.of(shape) for _ in range(in_flight)]
        mask = batches[0].mask if variant == "local" else None
        gradients = [one.grad for one in model.parameters()]
        ids = [(batch.ids, batch.labels) for batch in batches]
        positions = [batch.positions for batch in batches]
        with Saved(model, ids) as saved, Live(model, ids, positions, gradients) as live:
            outputs = [forward(model, shape, batch.with_mask(mask)) for batch in batches]
            start = torch.ones_like(outputs[0])

            def look() -> None:
                buffers = parallel_state.get_global_memory_buffer().buffer
                own = storages_in(outputs, buffers, *([start] if model.post_process or passed else []))
                found.append((saved.now, live.now - own.bytes()))

            with when_recomputed(look):
                outputs[0].backward(start)

    chosen = implementation.with_choices(recompute_method=method)
    known = values({}, "", **shape) | {"B": in_flight * shape["b"] * shape["D"]}
    for counted, bytes_found in zip(("saved", "megatron_te"), found[0], strict=True):
        layer, first_input, inner, recomputed, group, gradient = ledger(
            chosen.with_choices(peak=counted), "layer.saved", "layer_input.saved", "stage.inner_activations",
            "stage.recomputed_layer.layer_backward", "stage.recomputed_group.layer_backward",
            "stage.residual_gradient.layer_backward", **known,
        )
        again = shape["rn"] if method == "uniform" else 1
        held = first_input * (counted == "megatron_te") - first_input * (variant == "fused")
        beside = (again - passed) * layer + held
        of_head = summed_rows(
            chosen.with_choices(peak=counted, weight_gradient="separate"), ["head.tied_gradient"],
            known | {"v": shape["u"]})
        assert bytes_found == inner + gradient + of_head + beside + tables(chosen, {"rfull": 1}, known)
        assert recomputed + group == max(0, beside)
