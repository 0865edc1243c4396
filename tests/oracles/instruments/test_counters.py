"""The counters themselves: on sums that anybody can check, and two of them against PyTorch's allocator."""

from __future__ import annotations

from random import Random

import pytest
import torch
from oracles.hugging_face.huggingface import FAMILIES, causal_lm, random_shape, token_ids
from oracles.instruments.allocator import AllocatorLog
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.instruments.storages import storages_in
from torch._subclasses import FakeTensorMode


def test_views_are_one_storage() -> None:
    whole = torch.zeros(6, 4)
    assert storages_in(whole, whole[2:], whole.t(), {"part": [whole.view(-1)]}).bytes() == 96
    assert storages_in(whole[1]).bytes() == 96, "a view keeps the whole storage alive"


def test_dead_storages_count_nothing() -> None:
    tensors = [torch.zeros(10), torch.zeros(20)]
    storages = storages_in(tensors)
    del tensors[0]
    assert storages.bytes() == 80


def test_saved_once_and_while_alive() -> None:
    weight = torch.zeros(5, 3, requires_grad=True)
    hidden = torch.zeros(7, 3, requires_grad=True)
    with Saved() as saved:
        first = hidden.exp()  # keeps its result
        second = first @ weight.t()  # keeps the same storage and the weight
    assert saved.bytes() == 4 * (7 * 3 + 5 * 3)
    assert saved.bytes(weight) == saved.peak - 4 * 5 * 3 == 4 * 7 * 3
    del first, second
    assert saved.bytes(weight) == 0


def test_live_bytes_and_their_peak() -> None:
    known = torch.zeros(100)
    with Live(known) as live:
        one = known + 1
        one.add_(1)  # no new memory
        two = (one * 2) * 3  # the first product dies
        assert (live.now, live.peak) == (800, 1200)
        del one
        live.restart()
        assert (live.now, live.peak) == (400, 400)
        del two
    assert (live.now, live.peak) == (0, 400)


def test_fake_tensors_have_sizes() -> None:
    with FakeTensorMode():
        hidden = torch.empty(1 << 20, 1 << 20, requires_grad=True)
        with Live(hidden) as live, Saved() as saved:
            output = hidden.exp()
    assert live.now == saved.bytes(hidden) == output.nbytes == 4 << 40


@pytest.mark.cases(3, 40)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_allocator_saw_the_same(draw: Random, attention: str) -> None:
    """Both passes of a model leave the same bytes; the allocator's peaks are no lower, as it sees scratch memory.

    Eager attention multiplies with a number, which autograd keeps as a tensor of 8 bytes that no operation
    returned; on a GPU it lies in the memory of the host too.
    """
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    model = causal_lm(family, shape, attention)
    ids, labels = token_ids(shape), token_ids(shape)
    with Live(model, ids, labels) as live:
        output = model(input_ids=ids, labels=labels)
        forward, forward_peak = live.now, live.peak
        live.restart()
        output.loss.backward()
    backward, backward_peak = live.now, live.peak
    del output
    model.zero_grad()
    numbers = 8 * shape["L"] if attention == "eager" else 0
    with AllocatorLog() as log:
        output = model(input_ids=ids, labels=labels)
    assert log.net == forward + numbers
    assert log.peak >= forward_peak
    with AllocatorLog() as log:
        output.loss.backward()
    assert log.net == backward - forward - numbers
    assert log.peak >= backward_peak - forward - numbers
