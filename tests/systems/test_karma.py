"""Layers that are swapped, recomputed or kept: seconds against places and streams that are played, bytes, refusals."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from oracles.systems.host_streams import karma_pass
from times.test_host_time import value

import shardmath
from shardmath.errors import InputError
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.timing import build_all

pytestmark = pytest.mark.slow
KARMA = {"activation_offload": "karma", "recompute_method": "block", "peak": "saved"}
MODEL, GPU = "llama-3.1-8b", "h100-80gb"
JOB = {"num_gpus": 8, "global_batch_size": 16}


def test_seconds_of_both_passes() -> None:
    draw, terms, stalled = Random(1), build_all(MEGATRON.with_choices(**KARMA)), 0
    for _ in range(400):
        swapped, again, kept = draw.randint(0, 8), draw.randint(0, 4), draw.randint(2, 6)
        forward, backward, copy = (Fraction(draw.randint(1, 40), draw.randint(1, 9)) for _ in range(3))
        known = {"L": swapped + again + kept, "ol": swapped, "rfull": int(again > 0), "rn": max(1, again)}
        parts = {"layer.forward_time": forward, "layer.backward_time": backward, "layer.copy_time": copy}
        waits = [value(terms, f"layer.{way}_copy_waiting", known, parts) for way in ("forward", "backward")]
        layers = known["L"]
        assert (waits[0] + layers * forward, waits[1] + layers * backward + again * forward) == karma_pass(
            swapped, again, kept, forward, backward, copy)
        stalled += any(waits)
    assert 50 < stalled < 350


def test_bytes() -> None:
    def activations(**options: object) -> int:
        return shardmath.explain(MODEL, GPU, **JOB, **options).peak.by_role["activation"]  # type: ignore[arg-type]

    block = {"recompute": "full", "recompute_num_layers": 6, "kernels": {"recompute_method": "block", "peak": "saved"}}
    again = activations(**block)
    swapped = activations(cpu_offloading_num_layers=8)
    both = activations(cpu_offloading_num_layers=8, recompute="full", recompute_num_layers=6, kernels=KARMA)
    whole = activations(kernels={"peak": "saved"})
    assert whole - both == (whole - again) + (whole - swapped)


def test_recomputing_gives_the_link_time() -> None:
    def seconds(swapped: int, again: int) -> tuple[float, float]:
        further = {"recompute": "full", "recompute_num_layers": again} if again else {}
        time = shardmath.explain(MODEL, GPU, **JOB, cpu_offloading_num_layers=swapped, kernels=KARMA,  # type: ignore[arg-type]
                                 host_copy_bandwidth=20 * 10**9, **further).time
        assert time is not None
        return time.spent["copy"], time.seconds

    assert seconds(12, 8)[0] < seconds(12, 0)[0]
    assert seconds(12, 0)[0] > 0


@pytest.mark.parametrize(("asked", "message"), [
    ({"cpu_offloading_num_layers": 31, "kernels": KARMA}, "must leave 2 of num_layers.*nearest legal: 30"),
    ({"cpu_offloading_num_layers": 8, "pipeline_parallel": 2, "kernels": KARMA}, "must be 1 where saved tensors"),
    ({"cpu_offloading_num_layers": 8, "kernels": {**KARMA, "recompute_method": "uniform"}}, "choose recompute_method"),
])
def test_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shardmath.explain(MODEL, GPU, **JOB, **asked)  # type: ignore[arg-type]
