"""Adapters in Megatron-Core's own model on one rank: parameters, saved bytes, buffers of DDP and optimizer states."""

from __future__ import annotations

from random import Random

import pytest
from counted import values
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.megatron_core.megatron_cpu import Batch, config, forward, gpt_model, one_rank
from oracles.megatron_core.megatron_data import adamw, data_parallel
from oracles.megatron_core.megatron_layouts import VARIANTS, random_layout, tables
from oracles.megatron_core.megatron_lora import TARGETS, adapt
from torch.nn.functional import gelu, silu

from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parallel.shards import buffer_size, elements_in_shard, tensors_in_shard
from shardmath.symbolic.recompute import MODES

#: Activations of a gated MLP.
ACTIVATIONS = {"swiglu": silu, "geglu": gelu}
CASES = [(variant, adapters, parts) for variant in VARIANTS for adapters in TARGETS for parts in ("joined", "apart")]


@pytest.mark.cases(2, 40)
@pytest.mark.parametrize(("variant", "adapters", "parts"), CASES)
def test_adapters(draw: Random, variant: str, adapters: str, parts: str) -> None:
    """The first layer is counted as all others, where nobody needs the gradient of its input.

    A norm before it keeps nothing there. Under sequence parallelism the frozen projection of queries, keys and values
    keeps its rank's tokens in other layers, beside the input that adapters apart have gathered.
    """
    kernels, implementation = VARIANTS[variant]
    shape = random_layout(draw, variant)
    shape |= {"k": max(shape["k"], shape["t"])} if shape["a"] % max(shape["k"], shape["t"]) == 0 else {}
    switches = dict.fromkeys(draw.choice([MODES[name] for name in ("none", "none", "core_attention", "full")]), 1)
    shape |= {"L": shape["p"] * draw.randint(1, 3), "rl": shape["t"] * draw.randint(1, 9), "rn": 1} | switches
    in_flight, mlp = draw.randint(1, shape["p"] - shape["r"]), draw.choice(tuple(ACTIVATIONS))
    chosen = implementation.with_choices(mlp=mlp, adapters=adapters, adapter_parts=parts, peak="saved")
    with one_rank(shape, draw):
        model = gpt_model(shape, config(shape, activation_func=ACTIVATIONS[mlp]), kernels)
        adapt(model, shape["rl"], adapters, apart=parts == "apart")
        batches = [Batch.of(shape) for _ in range(in_flight)]
        mask = batches[0].mask if variant == "local" else None
        with Saved() as saved:
            outputs = [forward(model, shape, batch.with_mask(mask)) for batch in batches]
        found = saved.bytes(model, *(part for batch in batches for part in (batch.ids, batch.labels)))
    known = values({}, "", **shape) | {"B": in_flight * shape["b"] * shape["D"]}
    trained, frozen, activation, norm = ledger(
        chosen, "stage.parameters", "stage.frozen_parameters", "stage.activation", "attention_norm.saved", **known)
    assert sum(one.numel() for one in model.parameters() if one.requires_grad) == trained
    assert sum(one.numel() for one in model.parameters() if not one.requires_grad) == frozen
    assert len(outputs) == in_flight
    unneeded = 0
    if shape["r"] == 0 and "rfull" not in switches:
        unneeded += norm if chosen.choices["norms"] != "post" else 0
        if shape["sp"] and parts == "apart":
            unneeded += 2 * shape["s"] * shape["b"] * shape["h"] // (shape["t"] * shape["c"])
    assert found == activation - in_flight * unneeded + tables(chosen, switches, known)


@pytest.mark.cases(8, 100)
def test_buffers_and_states(draw: Random) -> None:
    """Frozen weights stay where they are; buffers and the states of the optimizer are those of the adapters."""
    t, p, D = draw.choice((1, 2, 4)), draw.choice((1, 2, 3)), draw.choice((1, 2, 3, 8))
    k, distributed = t * draw.randint(1, 2), bool(draw.randint(0, 1))
    shape = {
        "t": t, "c": draw.choice((1, 2)), "p": p, "r": draw.randrange(p), "D": D, "k": k, "a": k * draw.randint(1, 2),
        "d": 2 * draw.randint(1, 8), "h": t * draw.randint(1, 60), "f": t * draw.randint(1, 40), "s": 4, "b": 1,
        "L": p * draw.randint(1, 2), "u": t * draw.randint(4, 60), "tied": draw.randint(0, 1), "bias": 0, "qkn": 0,
        "w": draw.choice((2, 4)), "zero1": int(distributed), "rl": t * draw.randint(1, 9),
    }
    with one_rank(shape, draw) as replica:
        settings = config(shape)
        model = gpt_model(shape, settings)
        adapt(model, shape["rl"], "all_linear", apart=False)
        sizes = [one.numel() for one in model.parameters() if one.requires_grad]
        with Live(model) as live:
            wrapped = data_parallel(settings, model, distributed=distributed, gradient_bytes=shape["w"])
            after_wrapping = live.now
            optimizer = adamw(wrapped, distributed=distributed)
            optimizer.step()
            after_step = live.now
    shards = shape["D"] * shape["c"]
    buffer = buffer_size(sizes, shards) if distributed else sum(sizes)
    own = elements_in_shard(sizes, shards, replica) if distributed else sum(sizes)
    tensors = len(tensors_in_shard(sizes, shards, replica)) if distributed else len(sizes)
    assert after_wrapping == (shape["w"] + 2 * distributed) * buffer
    assert after_step - after_wrapping == (12 + 4 * (shape["w"] == 2)) * own + 4 * tensors + 4
    chosen = MEGATRON.with_choices(adapters="all_linear", peak="saved")
    weights, frozen, gradients, states, shard = ledger(
        chosen, "stage.weight", "stage.frozen_parameters", "stage.gradient", "stage.optimizer", "stage.shard_elements",
        **shape, B=p * D)
    assert (weights, gradients) == (2 * (buffer + frozen), shape["w"] * buffer)
    assert states == 12 * shard
    fullest = max(elements_in_shard(sizes, shards, each) for each in range(shards)) if distributed else own
    gaps = 63 * len(sizes) * any(size % 64 for size in sizes)
    assert 0 <= shard - fullest <= gaps
