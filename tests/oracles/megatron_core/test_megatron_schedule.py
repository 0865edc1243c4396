"""Tensors of the micro-batch before that Megatron-Core's 1F1B keeps while the next forward pass runs."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
schedules = pytest.importorskip("megatron.core.pipeline_parallel.schedules")


class Neighbours:
    """Pipeline neighbours that send what is asked for at once."""

    def __init__(self, config: Any, size: int, rank: int, inputs: list[Any]) -> None:
        self.config, self.inputs = config, inputs
        self.pp_group = SimpleNamespace(size=lambda: size, rank=lambda: rank)
        self.is_pp_first_stage, self.is_pp_last_stage = rank == 0, rank == size - 1

    def recv_forward(self, *_: Any) -> Any:
        received = torch.zeros(4, 8, requires_grad=True)
        self.inputs.append(weakref.ref(received))
        return [received]

    def send_forward(self, *_: Any) -> None: ...

    def send_backward(self, *_: Any) -> None: ...

    def recv_backward(self, *_: Any) -> Any:
        return [torch.ones(4, 8)]

    def send_forward_recv_backward(self, *_: Any) -> Any:
        return [None if self.is_pp_last_stage else torch.ones(4, 8)]

    def send_backward_recv_forward(self, *_: Any) -> Any:
        return self.recv_forward()


@pytest.mark.parametrize(("size", "rank", "count"), [(2, 1, 4), (4, 3, 4), (4, 2, 5), (4, 1, 6), (4, 2, 2)])
def test_inputs_alive_at_the_end_of_a_forward_pass(
    size: int, rank: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the micro-batches in flight, and of the one whose backward pass was the last."""
    config = SimpleNamespace(
        overlap_p2p_comm=False, finalize_model_grads_func=None, timers=None, no_sync_func=None,
        num_microbatches_with_partial_activation_checkpoints=None, deallocate_pipeline_outputs=True,
        grad_sync_func=None, cuda_graph_impl="none", fine_grained_activation_offloading=False,
    )
    inputs: list[Any] = []
    alive = []
    weight, zeros = torch.ones(8, 8, requires_grad=True), torch.zeros

    def forward_step(*arguments: Any, **_: Any) -> Any:
        output = arguments[4][0] @ weight
        gc.collect()
        alive.append(sum(reference() is not None for reference in inputs))
        return [output.sum() if rank == size - 1 else output], torch.tensor(0)

    def backward_step(received: Any, output: Any, gradient: Any, *_: Any) -> Any:
        torch.autograd.backward(output[0], gradient[0])
        return [received[0].grad]

    for name, replacement in (("forward_step", forward_step), ("backward_step", backward_step),
                              ("get_model_config", lambda _: config), ("get_model_type", lambda _: None),
                              ("get_tensor_shapes", lambda **_: [(4, 8)]),
                              ("deallocate_output_tensor", lambda *_: None)):
        monkeypatch.setattr(schedules, name, replacement)
    monkeypatch.setattr(torch, "zeros", lambda *sizes, **options: zeros(*sizes, **{**options, "device": "cpu"}))
    groups = SimpleNamespace(tp=None, cp=SimpleNamespace(size=lambda: 1), embd=None, pos_embd=None, pp=None, dp_cp=None)
    schedules.forward_backward_pipelining_without_interleaving(
        forward_step_func=None, data_iterator=None, model=torch.nn.Identity(), num_microbatches=count, seq_length=4,
        micro_batch_size=1, p2p_communicator=Neighbours(config, size, rank, inputs), pg_collection=groups,
    )
    flight = min(count, size - rank)
    assert alive == [min(number + 1, flight) + (number >= flight) for number in range(count)]
