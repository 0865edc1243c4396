"""Replayed steps of torchtitan against FSDP2 itself: every stream's memory, and what is allocated at most."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from oracles.instruments.traced import account_of
from oracles.pytorch.sharded_steps import STREAMS, by_stream, recorded
from stream_peaks import peaks_by_stream, peaks_by_terms
from sympy import Integer

from shardmath.account.accounting import explain
from shardmath.account.configured import configured
from shardmath.account.replaying import replayed
from shardmath.allocator.trace import replay
from shardmath.models.model import Model
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps
from shardmath.steps.trace import REDUCE
from shardmath.symbolic.accounts.pytorch.gathered import reduced_bytes

pytestmark = pytest.mark.slow


#: Type of shards by precision: parameters, gradients and moments.
SHARDS = {"mixed": torch.float32, "bf16": torch.bfloat16}


@pytest.mark.parametrize(("ranks", "batch", "layers", "length", "precision"), [
    (8, 2, 6, 4096, "mixed"), (4, 1, 4, 256, "mixed"), (2, 1, 2, 1024, "mixed"), (4, 1, 3, 512, "bf16")])
def test_peak_with_an_optimizer_in_the_backward_pass(
    ranks: int, batch: int, layers: int, length: int, precision: str,
) -> None:
    model = Model.named("llama-3.1-8b").model_copy(update={"num_layers": layers})
    sizes = {"L": layers, "h": 4096, "a": 32, "k": 8, "d": 128, "f": 14336, "v": model.vocab_size, "s": length,
             "b": batch}
    job: dict[str, Any] = {"implementation": "torchtitan", "seq_length": length, "micro_batch_size": batch,
                           "global_batch_size": batch * ranks, "data_parallel": ranks}
    after, freed = (explain(model, "h100-80gb", kernels={"optimizer_step": when, "precision": precision}, **job).peak
                    for when in ("after", "backward"))
    real = recorded(sizes, ranks, in_backward=True, shards=SHARDS[precision])
    assert freed.total == pytest.approx(real.peak, abs=64)
    assert freed.total <= after.total


@pytest.mark.parametrize(("name", "ranks", "batch", "layers", "precision"), [
    ("llama-3.1-8b", 8, 2, 6, "mixed"), ("llama-3.1-8b", 64, 1, 4, "mixed"), ("qwen3-8b", 8, 2, 4, "mixed"),
    ("qwen3-14b", 4, 1, 3, "mixed"), ("llama-3.1-8b", 8, 1, 4, "bf16")])
def test_memory_of_every_stream_is_that_of_fsdp2(
    name: str, ranks: int, batch: int, layers: int, precision: str,
) -> None:
    model = Model.named(name).model_copy(update={"num_layers": layers})
    sizes = {"L": layers, "h": model.hidden_size, "a": model.num_attention_heads, "k": model.num_kv_heads,
             "d": model.head_dim, "f": model.ffn_hidden_size, "v": model.vocab_size, "s": 4096, "b": batch,
             "qkn": int(model.qk_norm)}
    job = configured(model, "h100-80gb", implementation="torchtitan", seq_length=4096, micro_batch_size=batch,
                     global_batch_size=batch * ranks, data_parallel=ranks, kernels={"precision": precision}).job
    values = job.on_rank(0)
    numbers = account_of(job.evaluator, values)
    steps = Steps(Rows.of(job.evaluator, values, numbers), "1f1b", 1)
    ours, real = replay(steps.run()), recorded(sizes, ranks, shards=SHARDS[precision])
    theirs = replay(real.events)
    assert steps.trace.peak == pytest.approx(real.peak, abs=64)
    assert ours.reserved_peak == pytest.approx(theirs.reserved_peak, rel=0.01)
    largest, moments = peaks_by_stream(real.events), peaks_by_terms(numbers)
    for stream, number in STREAMS.items():
        assert moments[stream] == pytest.approx(largest[number], abs=64), stream
        assert by_stream(ours)[stream] == pytest.approx(by_stream(theirs)[number], rel=0.012), stream


@pytest.mark.cases(4, 60)
def test_peak_of_small_models_with_few_tokens(draws: list[Random]) -> None:
    """Ledger and replay, where the peak is often a moment of FSDP2's units: copies in a forward pass, reductions.

    Parameters, gradients and moments are in fp32, or in bf16 (``training.dtype``); gradients are summed in fp32.
    """
    for draw in draws:
        heads, width = draw.choice((1, 2, 4)), draw.choice((32, 64))
        sizes = {"L": draw.randint(1, 4), "a": heads, "k": draw.choice([k for k in (1, 2, 4) if k <= heads]),
                 "d": width, "h": heads * width, "f": 32 * draw.randint(4, 40),
                 "v": draw.choice((1, 2, 8)) * heads * width, "s": draw.choice((16, 64, 256)), "b": draw.choice((1, 2))}
        ranks, stays, precision = draw.choice((2, 4, 8)), draw.choice((False, True)), draw.choice(list(SHARDS))
        passes = draw.choice((1, 2))
        model = Model(
            name="drawn", source="", hidden_size=sizes["h"], ffn_hidden_size=sizes["f"], num_layers=sizes["L"],
            num_attention_heads=heads, num_kv_heads=sizes["k"], head_dim=width, vocab_size=sizes["v"],
            tied_embeddings=False, qkv_bias=False, qk_norm=False, max_seq_length=8192)
        account = replayed(configured(
            model, "h100-80gb", implementation="torchtitan", seq_length=sizes["s"], micro_batch_size=sizes["b"],
            global_batch_size=sizes["b"] * ranks * passes, data_parallel=ranks,
            kernels={"reshard": "never" if stays else "default", "precision": precision}))
        assert account.replay is not None, (account.replay_unknown, sizes, ranks, stays)
        theirs = recorded(sizes, ranks, stays=stays, shards=SHARDS[precision], passes=passes).peak
        assert account.peak_bytes == account.replay.allocated_bytes == pytest.approx(theirs, abs=64), (
            sizes, ranks, stays, precision, passes)


@pytest.mark.parametrize("reduced", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float32])
def test_a_reduction_of_another_precision_is_there_beside_its_gradient(
    kept: torch.dtype, reduced: torch.dtype,
) -> None:
    """The embedding is reduced last, when all other gradients are there."""
    sizes = {"L": 2, "h": 64, "a": 4, "k": 2, "d": 16, "f": 128, "v": 4096, "s": 32, "b": 1}
    of_layer = 64 * (64 + 2 * 32 + 64 + 3 * 128) + 2 * 64
    embedding = 4096 * 64
    most = peaks_by_stream(recorded(sizes, 4, steps=1, shards=kept, reduced=reduced).events)[STREAMS[REDUCE]]
    others = (2 * of_layer + embedding + 64) * kept.itemsize
    last = reduced_bytes(Integer(reduced.itemsize), Integer(kept.itemsize)) * embedding
    assert most == (others + last) / 4
