"""The orders of a walk against PyTorch's schedule classes and Megatron-Core's schedule functions, as these run them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from megatron.core.pipeline_parallel import schedules
from oracles.extent import FULL
from sympy import Integer
from torch.distributed.pipelining import schedules as pipelining

from shardmath.symbolic.parallel.schedules import SCHEDULES
from shardmath.symbolic.parallel.walk import Action, actions, stage
from shardmath.symbolic.parameters import symbol

MICRO_BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24) if FULL else (1, 2, 3, 4, 5, 8, 9)
MOST_RANKS = 8 if FULL else 4
CLASSES = {
    "interleaved": (pipelining.ScheduleInterleaved1F1B, (2, 3, 5)),
    "gpipe": (pipelining.ScheduleLoopedBFS, (2, 4)),
    "zero_bubble": (pipelining.ScheduleInterleavedZeroBubble, (1, 2, 4)),
    "zbv": (pipelining.ScheduleZBVZeroBubble, (2,)),
    "dualpipev": (pipelining.ScheduleDualPipeV, (2,)),
}


def rounds(p: int, m: int) -> int:
    return m // max(1, m // p)


def torch_order(schedule: Any, rank: int) -> Iterator[tuple[str, int, int]]:
    """Kind, stage and micro-batch of what PyTorch has a rank compute, forward and backward at once one by one."""
    names = {pipelining.FORWARD: "F", pipelining.FULL_BACKWARD: "B",
             pipelining.BACKWARD_INPUT: "I", pipelining.BACKWARD_WEIGHT: "W"}
    for entry in schedule.pipeline_order_with_comms[rank]:
        for action in entry.sub_actions or (entry,):
            if action.computation_type in names:
                yield names[action.computation_type], action.stage_index, action.microbatch_index


def torch_schedule(name: str, p: int, m: int, V: int) -> Any:
    ours = [
        SimpleNamespace(num_stages=p * V, group_size=p, group_rank=0, stage_index=stage(name, p, 0, chunk),
                        submod=torch.nn.Identity(), is_first=False, is_last=False)
        for chunk in range(V)
    ]
    return CLASSES[name][0](ours, m)


def holds(name: str, program: str, **values: int) -> bool:
    """True if no rule of a schedule is broken in ``program``; rules of letters without a value are left out."""
    numbers = {symbol(letter): Integer(value) for letter, value in values.items()}
    conditions = [rule.condition for rule in SCHEDULES[name].rules_in(program)]
    return all(each.xreplace(numbers) for each in conditions if each.free_symbols <= numbers.keys())


@pytest.mark.parametrize("p", range(2, MOST_RANKS + 1))
@pytest.mark.parametrize("name", CLASSES)
def test_pytorch_schedules_of_several_chunks(name: str, p: int) -> None:
    """Every action of every rank; what the rules refuse, the classes refuse."""
    compared = 0
    for V in CLASSES[name][1]:
        for m in MICRO_BATCHES:
            if not holds(name, "torchtitan", p=p, m=m):
                with pytest.raises(ValueError, match="microbatches"):
                    torch_schedule(name, p, m, V)
                continue
            theirs = torch_schedule(name, p, m, V)
            for rank in range(p):
                walked = actions(name, p, m, V, rounds(p, m), rank)
                ours = [(kind, stage(name, p, rank, chunk), batch) for kind, chunk, batch in walked]
                assert ours == list(torch_order(theirs, rank)), (p, m, V, rank)
                compared += 1
    assert compared >= 2 * p


@pytest.mark.parametrize("p", range(1, MOST_RANKS + 1))
@pytest.mark.parametrize(
    ("name", "schedule_class"), [("1f1b", pipelining.Schedule1F1B), ("gpipe", pipelining.ScheduleGPipe)]
)
def test_pytorch_schedules_of_one_chunk(name: str, schedule_class: Any, p: int) -> None:
    """Take the order that runs: ``_get_pipeline_order`` misnames micro-batches of the last rank under 1F1B."""
    for m in MICRO_BATCHES:
        for rank in range(p):
            ran: list[Action] = []
            mine = MagicMock(num_stages=p, stage_index=rank, is_last=False)
            mine.forward_one_chunk.side_effect = lambda batch, *_, ran=ran, **__: ran.append(Action("F", 0, batch))
            mine.backward_one_chunk.side_effect = lambda batch, ran=ran, **_: ran.append(Action("B", 0, batch))
            for operations in (mine.get_fwd_recv_ops, mine.get_fwd_send_ops, mine.get_bwd_recv_ops,
                               mine.get_bwd_send_ops):
                operations.return_value = []
            if name == "1f1b" and not holds(name, "torchtitan", p=p, m=m):
                with pytest.raises(ValueError, match="microbatches"):
                    schedule_class(mine, m)
                continue
            schedule = schedule_class(mine, m)
            schedule._initialize_stage = lambda *_: None
            schedule._step_microbatches([()] * m, [{}] * m)
            assert ran == actions(name, p, m, 1, 1, rank), (p, m, rank)


@pytest.fixture
def megatron(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Megatron-Core's schedules without a GPU and without a model: their passes only take notes."""
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *shape, **options: zeros(*shape, **{**options, "device": "cpu"}))
    monkeypatch.setattr(schedules, "get_model_config", lambda model: model.config)
    monkeypatch.setattr(schedules, "get_model_type", lambda model: None)
    return schedules


def megatron_order(
    megatron: Any, monkeypatch: pytest.MonkeyPatch, p: int, m: int, V: int, group: int, rank: int
) -> list[Action]:
    ran: list[Action] = []

    def forward(_function: Any, _data: Any, chunk: Any, *_: Any, current_microbatch: int, **__: Any) -> Any:
        ran.append(Action("F", chunk.index, current_microbatch))
        return [ran[-1]], 0

    def backward(_input: Any, output: Any, *_: Any) -> None:
        ran.append(output[0]._replace(kind="B"))

    monkeypatch.setattr(megatron, "forward_step", forward)
    monkeypatch.setattr(megatron, "backward_step", backward)
    config = MagicMock(
        overlap_p2p_comm=False, overlap_p2p_comm_warmup_flush=False, timers=None, no_sync_func=None,
        grad_sync_func=None, param_sync_func=None, finalize_model_grads_func=None, sequence_parallel=False,
        hidden_size=8, deallocate_pipeline_outputs=False, overlap_moe_expert_parallel_comm=False,
        hybrid_context_parallel=False, num_microbatches_with_partial_activation_checkpoints=None,
        fine_grained_activation_offloading=False, cuda_graph_impl="none", variable_seq_lengths=False,
        microbatch_group_size_per_vp_stage=group, virtual_pipeline_model_parallel_size=V if V > 1 else None,
    )
    chunks = []
    for index in range(V):
        chunks.append(torch.nn.Identity())
        chunks[-1].index, chunks[-1].config = index, config
    ranks, one = MagicMock(), MagicMock()
    ranks.size.return_value, ranks.rank.return_value, one.size.return_value = p, rank, 1
    link = MagicMock(pp_group=ranks, virtual_pipeline_model_parallel_size=config.virtual_pipeline_model_parallel_size)
    link.send_forward_backward_recv_forward_backward.return_value = (None, None)
    run = megatron.get_forward_backward_func(p, config.virtual_pipeline_model_parallel_size)
    run(
        forward_step_func=None, data_iterator=[None] * V, model=chunks, num_microbatches=m, seq_length=8,
        micro_batch_size=1, p2p_communicator=link,
        pg_collection=MagicMock(tp=one, cp=one, pp=ranks, embd=one, pos_embd=one, dp_cp=one),
    )
    return ran


@pytest.mark.parametrize("p", range(1, MOST_RANKS + 1))
def test_megatron_1f1b(megatron: Any, monkeypatch: pytest.MonkeyPatch, p: int) -> None:
    """With one rank its schedule without pipelining: one micro-batch after another."""
    for m in MICRO_BATCHES:
        for rank in range(p):
            walked = actions("1f1b", p, m, 1, 1, rank)
            assert walked == megatron_order(megatron, monkeypatch, p, m, 1, p, rank), (p, m, rank)


@pytest.mark.parametrize("p", range(2, min(MOST_RANKS, 6) + 1))
def test_megatron_interleaved(megatron: Any, monkeypatch: pytest.MonkeyPatch, p: int) -> None:
    """Groups of any size; what the rules refuse, the program refuses."""
    smaller_last_groups = 0
    for V in (2, 3, 4):
        for m in MICRO_BATCHES:
            for group in range(1, m + 2):
                if not holds("interleaved", "megatron", p=p, m=m, V=V, Gr=group):
                    with pytest.raises((ValueError, RuntimeError), match="micro-batches"):
                        megatron_order(megatron, monkeypatch, p, m, V, group, 0)
                    continue
                smaller_last_groups += m % group > 0
                for rank in range(p):
                    walked = actions("interleaved", p, m, V, group, rank)
                    assert walked == megatron_order(megatron, monkeypatch, p, m, V, group, rank), (p, m, V, group, rank)
    assert smaller_last_groups
