"""Megatron-FSDP's own buffers and temporary buckets against the ledger, for its three ways of sharing out."""

from __future__ import annotations

from math import lcm
from random import Random

import pytest
from oracles.instruments.ledger import ledger
from oracles.megatron_core.megatron_cpu import config, gpt_model, one_rank
from oracles.megatron_core.megatron_fsdp import Fp8Weights, buffers, step, wrapped
from oracles.systems.host_streams import layers_on_gpu

from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parallel.legality import fixed_values

FSDP = MEGATRON.with_choices(data_parallel="megatron_fsdp", peak="saved")
FP8 = {recipe: FSDP.with_choices(fp8=recipe, fp8_weights="primary") for recipe in ("current", "delayed")}
BLOCKS = FSDP.with_choices(recompute_method="block")
OFFLOADED = FSDP.with_choices(activation_offload="layers")


def random_shape(draw: Random, stage: int) -> dict[str, int]:
    """Draw sizes; buckets and queue are small enough for several of them."""
    t = draw.choice((1, 1, 2))
    k = t * draw.randint(1, 2)
    h = 8 * draw.randint(1, 4)
    shape = {
        "t": t, "c": draw.choice((1, 2)), "p": 1, "D": draw.choice((2, 3, 4, 8)), "k": k, "a": k * draw.randint(1, 2),
        "d": 2 * draw.randint(1, 8), "h": h, "f": t * h * draw.choice((1, 2, 4)), "L": draw.randint(1, 9),
        "u": t * draw.randint(8, 60), "s": 4 * t, "b": 1, "tied": draw.randint(0, 1), "bias": 0, "qkn": 0, "sp": 0,
        "w": draw.choice((2, 4)), "zero2": int(stage > 1), "zero3": int(stage > 2), "sbk": draw.choice((0, 0, 1)),
        "bz": draw.choice((100, 500, 3000, 10**6)), "cu": draw.choice((1, 2000, 9000, 30000, 10**6)),
    }
    return {**shape, **fixed_values(FSDP), "B": shape["D"]}


def gap(shape: dict[str, int]) -> int:
    """The padding of a bucket, in elements of all ranks, that gaps inside of it may add."""
    rows = lcm(shape["h"], shape["f"] // shape["t"], shape["a"] * shape["d"] // shape["t"])
    return rows * shape["D"] * shape["c"]


@pytest.mark.cases(12, 200)
def test_fp8_weights(draw: Random) -> None:
    """FP8 weights and norms of a layer have buckets of their own; a layer at work has transposed copies."""
    shape, chosen = random_shape(draw, 3), FP8[draw.choice(("current", "delayed"))]
    with one_rank(shape, draw):
        model = gpt_model(shape, config(shape))
        weights = Fp8Weights(model)
        with weights.known():
            model = wrapped(model, shape, 3)
            kept, (at_loss, asked, after) = buffers(model), step(model, shape)
        groups = model.param_and_grad_buffer.parameter_groups
        padded = {kind: sum(group.main_grad_buffer.bucket_index.size for group in groups
                            if (group.dtype == "float8") == (kind == "fp8")) for kind in ("fp8", "others")}
        own = next(group.main_grad_buffer.bucket_index.size for group in groups if group.fsdp_unit_id is None)
        del model, groups  # nothing prints tensors whose memory is gone
    names = ("gradient", "optimizer", "buffer_elements", "fp8_buffer_elements", "gathered_last.loss_forward",
             "unreduced_head.head_backward", "unreduced_layers.layer_backward",
             "unreduced_embedding.embedding_backward")
    terms = dict(zip(names, ledger(chosen, *(f"stage.{name}" for name in names), **shape), strict=True))
    saved, copies = ledger(chosen, "layer.saved", "layer.fp8_parameters", **shape)
    ranks = shape["D"] * shape["c"]
    more = sum(padded.values()) - terms["buffer_elements"] - terms["fp8_buffer_elements"]
    assert 0 <= more <= 2 * gap(shape) * (shape["L"] + 1)
    assert (weights.most, weights.transposed, after) == (copies, {}, 0)
    if more:
        return
    assert kept == {"weights": (padded["fp8"] + 2 * padded["others"]) / ranks, "gradients": terms["gradient"],
                    "masters": terms["optimizer"] / 3}
    assert terms["fp8_buffer_elements"] == padded["fp8"]
    assert at_loss == terms["gathered_last.loss_forward"]
    assert asked[0][1] == terms["unreduced_head.head_backward"]
    layers = [size + copies - (shape["L"] - 1 - unit) * saved for unit, size in asked if unit is not None]
    assert max(layers) == terms["unreduced_layers.layer_backward"]
    behind = 1 + max(place for place, (unit, _) in enumerate(asked) if unit is not None)
    largest = max(*(size for _, size in asked[behind:]), asked[-1][1] + shape["w"] * own // ranks)
    assert largest == terms["unreduced_embedding.embedding_backward"]


def check_offloaded(shape: dict[str, int], asked: list[tuple[int | None, int]], moved: int) -> None:
    """Compare the most bytes in the backward pass of a layer with the first layers on the host.

    Their sequences are long, for tensors that leave; buckets do not know how long they are.
    """
    a_layer, large, kept, buckets = ledger(
        OFFLOADED, "layer.saved", "layer.moved", "stage.inner_activations", "stage.unreduced_layers.layer_backward",
        **{**shape, "s": 2**18, "ol": moved})
    _, here = layers_on_gpu(shape["L"], moved)
    alive = {layer: (layer + 1) * (a_layer - large) + len(here[layer]) * large for layer in here}
    outside = kept - shape["L"] * a_layer + moved * large
    assert 0 < large < a_layer
    assert max(size + alive[unit] + outside for unit, size in asked if unit is not None) == kept + buckets


@pytest.mark.cases(12, 200)
def test_recomputed_blocks(draw: Random) -> None:
    """Of the first layers inputs wait alone, and the backward pass of each has its saved tensors once more."""
    shape = random_shape(draw, 3)
    shape |= {"rfull": 1, "rn": draw.randint(1, shape["L"] + 1)}
    with one_rank(shape, draw):
        model = wrapped(gpt_model(shape, config(shape, "block")), shape, 3)
        _, asked, after = step(model, shape)
        groups = model.param_and_grad_buffer.parameter_groups
        more = sum(group.main_grad_buffer.bucket_index.size for group in groups)
        del model, groups  # nothing prints tensors whose memory is gone
    assert after == 0
    if more > ledger(BLOCKS, "stage.buffer_elements", **shape)[0]:
        return
    for tokens in (4, 64, 2**10, 2**18):  # buckets do not know how long sequences are
        a_layer, an_input, kept, buckets, again = ledger(
            BLOCKS, "layer.saved", "layer_input.saved", "stage.inner_activations",
            "stage.unreduced_layers.layer_backward", "stage.recomputed_layer.layer_backward",
            **{**shape, "s": tokens * shape["t"]})
        saved = [an_input if layer < shape["rn"] else a_layer for layer in range(shape["L"])]
        most = max(size + sum(saved[:unit]) + a_layer for unit, size in asked if unit is not None)
        assert most == buckets + again + sum(saved), tokens
        assert kept >= sum(saved)
        assert 0 < an_input < a_layer


@pytest.mark.cases(12, 200)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_buffers_and_buckets(draw: Random, stage: int) -> None:
    shape = random_shape(draw, stage)
    with one_rank(shape, draw):
        model = wrapped(gpt_model(shape, config(shape)), shape, stage)
        kept, (at_loss, asked, after) = buffers(model), step(model, shape)
        groups = model.param_and_grad_buffer.parameter_groups
        padded = [group.main_grad_buffer.bucket_index.size for group in groups]
        own = next(size for size, group in zip(padded, groups, strict=True) if stage < 3 or group.fsdp_unit_id is None)
        del model, groups  # nothing prints tensors whose memory is gone
    names = ("weight", "gradient", "optimizer", "buffer_elements", "gathered_last.loss_forward",
             "unreduced_head.head_backward", "unreduced_layers.layer_backward",
             "unreduced_embedding.embedding_backward")
    terms = dict(zip(names, ledger(FSDP, *(f"stage.{name}" for name in names), **shape), strict=True))
    saved, = ledger(FSDP, "layer.saved", **shape)
    ranks = shape["D"] * shape["c"]
    more = sum(padded) - terms["buffer_elements"]
    assert 0 <= more <= gap(shape) * len(padded)
    if stage == 3 and more == 0:
        assert kept == {"weights": terms["weight"], "gradients": terms["gradient"], "masters": terms["optimizer"] / 3}
        assert (at_loss, after) == (terms["gathered_last.loss_forward"], 0)
        assert asked[0][1] == terms["unreduced_head.head_backward"]
        layers = [size - (shape["L"] - 1 - unit) * saved for unit, size in asked if unit is not None]
        assert max(layers) == terms["unreduced_layers.layer_backward"]
        check_offloaded(shape, asked, draw.randrange(shape["L"]))
        behind = 1 + max(place for place, (unit, _) in enumerate(asked) if unit is not None)
        largest = max(*(size for _, size in asked[behind:]), asked[-1][1] + shape["w"] * own // ranks)
        assert largest == terms["unreduced_embedding.embedding_backward"]
    else:
        shares = {"weights": (2, stage > 2), "gradients": (shape["w"], stage > 1), "masters": (4, True)}
        assert kept == {name: size * sum(padded) / (ranks if shared else 1) for name, (size, shared) in shares.items()}
    if stage == 2:
        most = max(size for _, size in asked)
        if shape["sbk"]:
            assert most == terms["unreduced_layers.layer_backward"] == terms["unreduced_head.head_backward"]
        assert most - shape["w"] * max(more, 0) <= terms["unreduced_embedding.embedding_backward"]
    if stage == 1:
        assert (at_loss, asked, after) == (0, [], 0)
