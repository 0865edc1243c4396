"""Megatron-Core's gradient and parameter buffers and its AdamW states on one rank, against the ledger.

Bytes are those of PyTorch's AdamW; Transformer Engine's and Apex' fused ones keep the same states but for the
four bytes of each tensor's step. The 4 bytes more that the constructor leaves are a scale of 1.0.
"""

from __future__ import annotations

import sys
from random import Random
from types import ModuleType
from typing import Any

import pytest
import torch
from megatron.core import optimizer as optimizer_module
from megatron.core import utils
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.megatron_core.megatron_cpu import config, gpt_model, one_rank
from oracles.megatron_core.megatron_data import adamw, data_parallel, step_on_lists
from packaging.version import Version
from torch.optim import AdamW

from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parallel.shards import buffer_size, elements_in_shard, tensors_in_shard

LISTED = MEGATRON.with_choices(peak="megatron_local", optimizer_kernel="foreach")


def random_layout(draw: Random) -> dict[str, int]:
    t, p, D = draw.choice((1, 2, 4)), draw.choice((1, 1, 2, 3)), draw.choice((1, 2, 3, 5, 8, 64))
    k, V = t * draw.randint(1, 2), draw.choice((1, 1, 2, 3)) if p > 1 else 1
    return {
        "t": t, "c": draw.choice((1, 2, 3)), "p": p, "r": draw.randrange(p), "D": D, "k": k, "V": V,
        "a": k * draw.randint(1, 2), "d": 2 * draw.randint(1, 8), "h": draw.randint(1, 60),
        "f": t * draw.randint(1, 40), "L": p * V * draw.randint(1, 2), "u": t * draw.randint(4, 60), "s": 4, "b": 1,
        "tied": draw.randint(0, 1), "bias": draw.randint(0, 1), "qkn": draw.randint(0, 1),
        "w": draw.choice((2, 4)), "zero1": draw.randint(0, 1),
    }


def chunks_of(shape: dict[str, int], settings: Any) -> list[Any]:
    """Make the rank's part of the model, one for each of its chunks of layers."""
    return [gpt_model(shape, settings, chunk=chunk if shape["V"] > 1 else None) for chunk in range(shape["V"])]


@pytest.mark.cases(24, 400)
def test_buffers_and_states(draw: Random) -> None:
    shape = random_layout(draw)
    if draw.random() < 0.4:  # sizes as real models have them
        shape |= {"h": 64 * draw.randint(1, 3), "d": 64, "f": 64 * shape["t"] * draw.randint(1, 3)}
    if shape["p"] > 1 and draw.random() < 0.4:  # embedding and loss count as layers
        embedding, loss = draw.choice(((0, 1), (1, 0), (1, 1)))
        shape |= {"eemb": embedding, "eloss": loss, "L": shape["p"] * shape["V"] * 2 - embedding - loss}
    distributed, shards = bool(shape["zero1"]), shape["D"] * shape["c"]
    with one_rank(shape, draw) as replica:
        settings = config(shape)
        models = chunks_of(shape, settings)
        buckets = [bucket for model in models for bucket in sizes_by_bucket(model, distributed)]
        with Live(*models) as live:
            wrapped = [data_parallel(settings, model, distributed=distributed, gradient_bytes=shape["w"])
                       for model in models]
            after_wrapping = live.now
            optimizer = adamw(*wrapped, distributed=distributed)
            after_making = live.now
            optimizer.step()
            after_step = live.now
    buffer = own = sum(map(sum, buckets))
    tensors = sum(map(len, buckets))
    if distributed:
        buffer = sum(buffer_size(sizes, shards) for sizes in buckets)
        own = sum(elements_in_shard(sizes, shards, replica) for sizes in buckets)
        tensors = sum(len(tensors_in_shard(sizes, shards, replica)) for sizes in buckets)
    assert after_wrapping == (shape["w"] + 2 * distributed) * buffer
    assert after_making - after_wrapping == 4 * own + 4
    assert after_step - after_making == (8 + 4 * (shape["w"] == 2)) * own + 4 * tensors

    chosen = MEGATRON.with_choices(
        schedule="interleaved" if shape["V"] > 1 else "1f1b", stages="uneven" if "eemb" in shape else "even",
    )
    parameters, padded, shard, weights, gradients, states, copies = ledger(
        chosen, "stage.parameters", "stage.buffer_elements", "stage.shard_elements", "stage.weight", "stage.gradient",
        "stage.optimizer", "stage.gradient_copies.optimizer_step", **shape, B=shape["p"] * shape["D"],
    )
    assert parameters == sum(map(sum, buckets))
    assert (padded, weights, gradients) == (buffer, 2 * buffer, shape["w"] * buffer)
    assert (states, copies) == (12 * shard, 4 * (shape["w"] == 2) * shard)
    fullest = own if not distributed else max(
        sum(elements_in_shard(sizes, shards, each) for sizes in buckets) for each in range(shards)
    )
    gaps = 63 * sum(map(len, buckets)) * any(size % 64 for sizes in buckets for size in sizes)
    assert 0 <= shard - fullest <= gaps


class FusedAdam(AdamW):
    """Moments as Transformer Engine's AdamW keeps them: of two widths, for fp32 parameters that it is given."""

    def __init__(
        self, params: Any, exp_avg_dtype: torch.dtype, exp_avg_sq_dtype: torch.dtype, *, master_weights: bool = False,
        master_weight_dtype: Any = None, use_decoupled_grad: bool = False, adam_w_mode: bool = True,
        store_param_remainders: bool = False, **others: Any,
    ) -> None:
        assert not master_weights  # Megatron-Core has them
        super().__init__(params, **others)
        self.types = {"exp_avg": exp_avg_dtype, "exp_avg_sq": exp_avg_sq_dtype}

    def step(self, closure: Any = None) -> None:
        """Make the moments."""
        for group in self.param_groups:
            for parameter in group["params"]:
                assert parameter.dtype == torch.float32
                for name, kind in self.types.items():
                    self.state[parameter].setdefault(name, torch.zeros_like(parameter, dtype=kind))


@pytest.mark.cases(8, 100)
def test_moments_of_any_width_with_scales_of_the_moment(draw: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """With these FP8 recipes Megatron-Core itself has fp32 master weights, and copies gradients to their width."""
    monkeypatch.setattr(optimizer_module, "Adam", FusedAdam)
    monkeypatch.setattr(optimizer_module, "USING_PYTORCH_OPTIMIZER", False)
    named = ModuleType("transformer_engine.pytorch.optimizers")
    named.FusedAdam = FusedAdam  # type: ignore[attr-defined]
    for name in ("transformer_engine", "transformer_engine.pytorch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "transformer_engine.pytorch.optimizers", named)
    monkeypatch.setattr(utils, "_te_version", Version("2.11.0"))
    shape = random_layout(draw) | {"zero1": 1, "V": 1}
    widths = {letter: draw.choice((2, 4)) for letter in ("m1", "m2")}
    types = {2: torch.bfloat16, 4: torch.float32}
    recipe, ours = draw.choice((("tensorwise", "current"), ("mxfp8", "mx"), ("blockwise", "block")))
    with one_rank(shape, draw) as replica:
        settings = config(shape)
        model = gpt_model(shape, settings)
        buckets = sizes_by_bucket(model, distributed=True)
        with Live(model) as live:
            wrapped = data_parallel(settings, model, distributed=True, gradient_bytes=shape["w"])
            before = live.now
            optimizer = adamw(
                wrapped, distributed=True, use_precision_aware_optimizer=True, fp8_recipe=recipe,
                exp_avg_dtype=types[widths["m1"]], exp_avg_sq_dtype=types[widths["m2"]])
            made = live.now - before
            optimizer.step()
            stepped = live.now - before - made
    own = sum(elements_in_shard(sizes, shape["D"] * shape["c"], replica) for sizes in buckets)
    moments = sum(widths.values())
    assert (made, stepped) == (4 * own + 4, (moments + 4 * (shape["w"] == 2)) * own)
    shard, states, copies = ledger(
        MEGATRON.with_choices(optimizer="precision_aware_core", fp8=ours), "stage.shard_elements", "stage.optimizer",
        "stage.gradient_copies.optimizer_step", **shape, **widths, B=shape["p"] * shape["D"])
    assert (states, copies) == ((4 + moments) * shard, 4 * (shape["w"] == 2) * shard)


@pytest.mark.cases(16, 200)
def test_lists_of_pytorchs_adamw(draw: Random) -> None:
    """A step on lists of parameters, as PyTorch takes them on a GPU, makes roots of the moments of all matrices."""
    shape = random_layout(draw) | {"V": 1, "h": 8 * draw.randint(1, 6)}
    distributed, shards = bool(shape["zero1"]), shape["D"] * shape["c"]
    with one_rank(shape, draw):
        settings = config(shape)
        model = gpt_model(shape, settings)
        with Live(model) as live:
            wrapped = data_parallel(settings, model, distributed=distributed, gradient_bytes=shape["w"])
            optimizer = adamw(wrapped, distributed=distributed)
            growth, lists = step_on_lists(optimizer, live)
    copies, roots, shard = ledger(
        LISTED, "stage.gradient_copies.optimizer_step", "stage.listed_roots.optimizer_step", "stage.shard_elements",
        **shape, B=shape["p"] * shape["D"])
    own, matrices = sum(lists), max(lists)
    assert growth == 4 * matrices + 4 * (shape["w"] == 2) * own or not own
    vectors = sum(each.numel() for each in model.parameters() if each.ndim == 1)
    assert 4 * matrices <= roots <= 4 * (matrices + distributed * (vectors + shard - own))
    if not distributed or shards == 1:
        assert (copies, roots) == (4 * (shape["w"] == 2) * own, 4 * matrices)


@pytest.mark.cases(6, 60)
@pytest.mark.parametrize(("name", "momentum"), [("sgd_momentum", 0.9), ("sgd", 0.0)])
def test_states_of_sgd(draw: Random, name: str, momentum: float) -> None:
    shape = random_layout(draw) | {"zero1": 0, "V": 1}
    with one_rank(shape, draw):
        settings = config(shape)
        model = gpt_model(shape, settings)
        with Live(model) as live:
            wrapped = data_parallel(settings, model, distributed=False, gradient_bytes=shape["w"])
            after_wrapping = live.now
            optimizer = adamw(wrapped, distributed=False, optimizer="sgd", sgd_momentum=momentum)
            optimizer.step()
            after_step = live.now
    states, copies = ledger(
        MEGATRON.with_choices(optimizer=name), "stage.optimizer", "stage.gradient_copies.optimizer_step", **shape
    )
    assert after_step - after_wrapping == states + copies + 4


def sizes_by_bucket(model: Any, distributed: bool) -> list[list[int]]:
    """Elements of the parameters in order of registration, by bucket.

    An embedding that two pipeline ranks share has a bucket of its own, which is padded and cut into shards like the
    other.
    """
    parameters = list(model.parameters())
    alone = [one.numel() for one in parameters if distributed and getattr(one, "shared_embedding", False)]
    others = [one.numel() for one in parameters if not (distributed and getattr(one, "shared_embedding", False))]
    return [sizes for sizes in (others, alone) if sizes]
