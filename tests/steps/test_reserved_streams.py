"""Largest moments of FSDP2's streams: terms of the ledger against every allocation of drawn steps."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from stream_peaks import peaks_by_stream, peaks_by_terms

from shardmath.account.configured import Configuration, configured
from shardmath.allocator.settings import Settings
from shardmath.allocator.trace import replay
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.steps.reserved import replayed_steps
from shardmath.symbolic.reserved import BEYOND

SHARDED: dict[str, str] = {"peak": "torch", "data_parallel": "fsdp"}


def of_torchtitan(draw: Random) -> Configuration:
    tensor, data = draw.choice((1, 2, 8)), draw.choice((1, 2, 4, 8, 64))
    batch, count, context = draw.choice((1, 2, 4)), draw.choice((1, 1, 2, 4)), draw.choice((1, 1, 2))
    return configured(
        draw.choice(("llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b")), "h100-80gb", implementation="torchtitan",
        tensor_parallel=tensor, context_parallel=context, data_parallel=data, seq_length=1024 * draw.choice((1, 2, 8)),
        micro_batch_size=batch, global_batch_size=batch * data * count, recompute=draw.choice(("none", "full")),
        kernels={"reshard": draw.choice(("always", "default", "never"))},
        data_parallel_replicas=draw.choice((1, 2)) if data > 2 else 1)


def of_huggingface(draw: Random) -> Configuration:
    data, batch, count = draw.choice((1, 2, 4, 8, 64)), draw.choice((1, 2, 8)), draw.choice((1, 1, 2, 4))
    precision = draw.choice(("mixed", "bf16"))
    return configured(
        draw.choice(("llama-3.2-1b", "llama-3.1-8b", "qwen3-0.6b", "qwen2.5-7b")), "h100-80gb",
        implementation="huggingface", data_parallel=data, seq_length=1024 * draw.choice((1, 2, 4)),
        micro_batch_size=batch, global_batch_size=batch * data * count, recompute=draw.choice(("none", "full")),
        gradients=draw.choice(("bf16", {"mixed": "fp32", "bf16": "bf16"}[precision])),
        kernels={**SHARDED, "precision": precision, "units": draw.choice(("root", "ends")),
                 "reshard": draw.choice(("always", "default", "never")),
                 "loss": draw.choice(("huggingface", "huggingface_freed"))})


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [of_torchtitan, of_huggingface])
def test_largest_moments_are_those_of_all_allocations(drawn: Any) -> None:
    draw, shown = Random(7), 0
    for _ in range(25):
        job = drawn(draw).job
        values = job.on_rank(0)
        numbers = terms_at(job.evaluator.terms, values)
        try:
            steps, *_ = replayed_steps(job.evaluator, values, numbers, Settings())
        except InputError:  # the ledger has no moment of a forward pass
            continue
        shown += 1
        terms = peaks_by_terms(numbers)
        largest = peaks_by_stream(steps.trace.events)
        assert terms == {stream: largest[stream] for stream in terms}, (job.values, job.evaluator.choices)
        streams = sum(terms.values())
        assert numbers["stage.total"] + numbers[BEYOND] == streams
        assert streams <= replay(steps.trace.events).reserved_peak  # without a bound, at which blocks are given back
    assert shown > 18


def test_one_stream_has_all_memory_without_fsdp2() -> None:
    job = configured("llama-3.2-1b", "h100-80gb", implementation="megatron", num_gpus=8, global_batch_size=8).job
    assert BEYOND not in terms_at(job.evaluator.terms, job.on_rank(0))
