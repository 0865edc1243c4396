"""Outer states, copies and traffic of local updates: the papers' rule run and counted, against the ledger."""

from __future__ import annotations

from random import Random

import pytest
from oracles.systems.local_updates import average, train
from outer_terms import ledger

from shardmath.symbolic.implementations import TORCHTITAN
from shardmath.symbolic.timing import build_all

LAYERS = 4


@pytest.mark.cases(6, 60)
def test_diloco(draw: Random) -> None:
    fragments = draw.choice((1, 2, 4))
    every = draw.randint(1, 4)
    overlap = draw.randint(0, every - 1)
    width = 8 * draw.randint(1, 8)
    counted = train(LAYERS, width, every * fragments, fragments, overlap)
    elements = LAYERS * width**2
    one_way = {"R": 2, "fr": fragments, "ob": 32}
    assert counted.momentum == 4 * elements
    assert counted.backup == ledger("diloco_host", "stage.host_local_updates", elements)
    states = TORCHTITAN.with_choices(local_updates="diloco")
    assert build_all(states)["stage.optimizer"].expression.coeff(
        build_all(states)["stage.shard_elements"].symbol) == 8 + (counted.momentum + counted.backup) // elements
    # With two groups an all-reduce sends as many bytes as the tensor has.
    sent = {size for size in counted.sent if size}
    assert sent == {ledger("diloco", "stage.outer_sent_bytes", elements, **one_way)}
    assert sum(counted.sent) == 2 * fragments * sent.pop()
    assert max(counted.beside) == ledger("diloco", "stage.outer_step.optimizer_step", elements, fr=fragments)
    during = ledger("diloco", "stage.outer_gradients", elements, fr=fragments, lt=overlap)
    idle = [size for step, size in enumerate(counted.beside) if step % every not in (every - 1, every - 1 - overlap)]
    waiting = [size for step, size in enumerate(counted.beside) if every - 1 - overlap < step % every < every - 1]
    assert set(waiting) <= {during}
    assert set(idle) <= {0, during}


@pytest.mark.cases(3, 20)
def test_local_sgd(draw: Random) -> None:
    width = 8 * draw.randint(1, 8)
    elements = LAYERS * width**2
    counted = average(LAYERS, width)
    assert counted.beside == (ledger("average", "stage.outer_step.optimizer_step", elements),)
    assert counted.sent == (ledger("average", "stage.outer_sent_bytes", elements, R=2, fr=1, ob=32),)
