"""Optimizer states that come to the GPU by subgroups: seconds, bytes, refusals, and the run that the authors logged."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from oracles.host_streams import interleaved_step
from test_host_time import value

import shardmath
from shardmath.errors import InputError
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.timing import build_all

pytestmark = pytest.mark.slow
JOB = {"num_gpus": 8, "global_batch_size": 16}
MODEL, GPU = "llama-3.1-8b", "h100-80gb"
PARTS = ("host_update_time", "host_copy_time", "half_copy_time", "gpu_update_time")


def test_seconds_of_an_update() -> None:
    draw, terms = Random(1), build_all(MEGATRON.with_choices(optimizer_offload="interleaved"))
    for _ in range(200):
        groups, stride = draw.randint(1, 20), draw.randint(2, 6)
        seconds = [Fraction(draw.randint(1, 40), draw.randint(1, 9)) for _ in PARTS]
        parts = {f"stage.{name}": number for name, number in zip(PARTS, seconds, strict=True)}
        parts |= {"stage.subgroups": Fraction(groups), "stage.gpu_subgroups": Fraction(groups // stride)}
        assert value(terms, "stage.interleaved_update", {"gk": stride}, parts) == interleaved_step(
            groups, stride, *seconds)


def test_bytes() -> None:
    size = 10**8
    plain = shardmath.explain(MODEL, GPU, **JOB)
    own = shardmath.explain(MODEL, GPU, **JOB, gpu_update_stride=2, sub_group_size=size)
    assert own.peak.by_role["optimizer"] == 0
    assert own.peak.by_role["transient"] - plain.peak.by_role["transient"] == 16 * size
    assert plain.time is not None
    assert own.time is not None
    assert own.time.seconds > plain.time.seconds


def test_two_devices_are_faster_than_the_host_alone() -> None:
    host = shardmath.explain(MODEL, GPU, **JOB, optimizer_offload_percent=100).time
    both = [shardmath.explain(MODEL, GPU, **JOB, gpu_update_stride=stride, sub_group_size=10**7).time
            for stride in (2, 3, 10)]
    assert host is not None
    seconds = [time.spent["host"] for time in both if time is not None]
    assert seconds == sorted(seconds)
    assert seconds[0] < host.spent["host"]


@pytest.mark.parametrize(("asked", "message"), [
    ({"kernels": {"optimizer_offload": "interleaved"}}, "gpu_update_stride = 1: must be 2 or more.*nearest legal: 2"),
    ({"gpu_update_stride": 2, "kernels": {"optimizer": "sgd"}}, "not counted yet"),
])
def test_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shardmath.explain(MODEL, GPU, **JOB, **asked)  # type: ignore[arg-type]


def test_the_run_that_the_authors_logged() -> None:
    """Subgroups of their log of a model of 7B: 16 bytes of the largest, and 16-bit gradients of every second one."""
    embedding, layer = 206_045_184, (16_781_312, 20_971_520, 90_181_632, 45_088_768)
    groups = [embedding, *layer * 32, embedding]
    gib = 2**30
    assert round(16 * max(groups) / gib, 2) == round(15.35 - 12.28, 2)
    assert round(2 * sum(groups[1::2]) / gib, 2) == round(22.11 - 15.35, 2)
    # Their update took 4.13 s: what the link carries if copies bound it, one direction after the other.
    assert round(24 * sum(groups[1::2]) / 4.13 / 10**9) == 21
    assert round(9.48 / 6.82, 2) == 1.39
