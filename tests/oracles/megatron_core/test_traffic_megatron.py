"""Traffic of one rank of Megatron-Core in a whole step: to other stages, and among data-parallel ranks.

Two small collectives of a step have no row in the ledger and are counted here: with sequence parallelism the gradients
of norms are summed over the tensor-parallel ranks, and the optimizer asks whether any rank found an infinity.
"""

from __future__ import annotations

from itertools import repeat
from random import Random
from typing import Any

import pytest
from counted import values
from megatron.core import parallel_state
from megatron.core.distributed import finalize_model_grads
from megatron.core.pipeline_parallel import get_forward_backward_func
from oracles.instruments.sent import Call, Sent, Traffic
from oracles.instruments.times import timed
from oracles.megatron_core.megatron_cpu import Batch, config, gpt_model, one_rank
from oracles.megatron_core.megatron_data import adamw, data_parallel
from oracles.megatron_core.test_megatron_schedules import chosen_for, random_job
from torch import Tensor
from torch import distributed as dist


def forward_step(batches: Any, chunk: Any) -> tuple[Tensor, Any]:
    """Run one micro-batch through a chunk that is wrapped for data parallelism."""
    batch = next(batches)
    labels = batch.labels if chunk.module.post_process else None
    return chunk(batch.ids, batch.positions, batch.mask, labels=labels), lambda losses: (losses.sum(), {})


def of(sent: Sent, group: Any, *operations: str) -> list[Call]:
    """Calls among the ranks of a group."""
    ranks = tuple(dist.get_process_group_ranks(group))
    return [call for call in sent.calls if call.ranks == ranks and call.operation in operations]


@pytest.mark.cases(12, 100)
def test_messages_and_gradients_of_a_step(draw: Random) -> None:
    shape = random_job(draw) | {
        "D": draw.choice((1, 2, 4)), "c": draw.choice((1, 2)), "tied": draw.randint(0, 1), "w": draw.choice((2, 4)),
        "zero1": draw.randint(0, 1),
    }
    shape["s"] *= shape["c"]
    several, distributed = shape["V"] > 1, bool(shape["zero1"])
    with one_rank(shape, draw):
        settings = config(
            shape, deallocate_pipeline_outputs=True, batch_p2p_sync=False,
            finalize_model_grads_func=finalize_model_grads, microbatch_group_size_per_vp_stage=shape["G"] or None,
        )
        models = [gpt_model(shape, settings, chunk=chunk if several else None) for chunk in range(shape["V"])]
        chunks = [data_parallel(settings, model, distributed=distributed, gradient_bytes=shape["w"])
                  for model in models]
        batch = Batch.of(shape).with_mask(None)
        with Sent() as passes:
            get_forward_backward_func()(
                forward_step_func=forward_step, data_iterator=[repeat(batch) for _ in chunks], model=chunks,
                num_microbatches=shape["m"], seq_length=shape["s"], micro_batch_size=shape["b"], forward_only=False,
            )
        data = parallel_state.get_data_parallel_group(with_context_parallel=True)
        messages = of(passes, parallel_state.get_pipeline_model_parallel_group(), "send")
        reduced = of(passes, data, "scatter", "allreduce_coalesced")
        ends = parallel_state.get_embedding_group(check_initialized=False)
        tied = of(passes, ends, "allreduce") if holds_end(shape) else []
        gathered = step(settings, models, shape, data) if not several else None
    padding = sum(buffer_padding(chunk) for chunk in chunks)
    for chosen in chosen_for(shape):
        found = timed(chosen, **values({}, "", **shape) | {"B": shape["m"] * shape["b"] * shape["D"]})
        assert len(messages) == found["stage.messages"]
        assert {call.bytes for call in messages} <= {found["step.sent_bytes"]}
        assert sum(call.bytes for call in tied) == found["stage.tied_bytes"]
        if shape["D"] * shape["c"] == 1:
            continue
        assert sum(call.bytes for call in reduced) == shape["w"] * (found["stage.parameters"] + padding)
        if len(chunks) == 1 and not tied:  # tied matrices have a bucket of their own, other chunks have their own too
            calls = [found["stage.reduced_bytes"]] * int(found["stage.reducing_calls"])
            assert [call.bytes for call in reduced] == calls
            assert gathered == [found["stage.gathered_bytes"]] * distributed


def holds_end(shape: dict[str, int]) -> bool:
    """Tell if the rank is the first or the last of several stages."""
    return shape["p"] > 1 and shape["r"] in (0, shape["p"] - 1)


def buffer_padding(chunk: Any) -> int:
    """Elements of a chunk's buffers that are no parameters."""
    return sum(buffer.numel for buffer in chunk.buffers) - sum(one.numel() for one in chunk.parameters())


def step(settings: Any, models: list[Any], shape: dict[str, int], data: Any) -> list[int]:
    """Bytes of each gather of weights after an optimizer step."""
    distributed = bool(shape["zero1"])
    wrapped = data_parallel(settings, models[0], distributed=distributed, gradient_bytes=shape["w"])
    optimizer = adamw(wrapped, distributed=distributed)
    with Sent() as sent:
        optimizer.step()
    return [call.bytes for call in of(sent, data, "gather")]


@pytest.mark.cases(8, 70)
def test_what_has_no_row(draw: Random) -> None:
    """Gradients of norms, of which every tensor-parallel rank has a part with sequence parallelism."""
    t, layers = draw.choice((2, 4)), draw.randint(1, 3)
    k = t * draw.randint(1, 2)
    shape = {
        "t": t, "p": 1, "r": 0, "c": 1, "D": 1, "V": 1, "sp": draw.randint(0, 1), "k": k, "a": k,
        "d": 2 * draw.randint(1, 6), "h": t * draw.randint(1, 20), "f": t * draw.randint(1, 20), "L": layers,
        "s": 2 * t, "b": 1, "u": 8 * t, "tied": 0, "qkn": draw.randint(0, 1), "w": draw.choice((2, 4)),
    }
    with one_rank(shape, draw):
        settings = config(shape)
        wrapped = data_parallel(settings, gpt_model(shape, settings), distributed=False, gradient_bytes=shape["w"])
        with Sent() as sent:
            finalize_model_grads([wrapped], None)
        found = sent.over(parallel_state.get_tensor_model_parallel_group())
    elements = (2 * layers + 1) * shape["h"] + 2 * layers * shape["d"] * shape["qkn"]
    once = shape["sp"] or shape["qkn"]
    expected = elements if shape["sp"] else 2 * layers * shape["d"] * shape["qkn"]
    assert found == Traffic(2 * once, 2 * once * shape["w"] * expected)
