"""Time of what the host does: formulas against streams that are played event by event."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from oracles.systems.host_streams import hybrid_step, offloaded_pass
from sympy import Expr, Integer, Rational, Symbol

import shardmath
from shardmath.errors import InputError
from shardmath.machines.files import cluster_of
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parameters import symbol
from shardmath.symbolic.terms import TermSet
from shardmath.symbolic.timing import build_all

pytestmark = pytest.mark.slow
JOB = {"num_gpus": 8, "global_batch_size": 16}
MODEL, GPU = "llama-3.1-8b", "h100-80gb"


def rational(value: Fraction) -> Rational:
    return Rational(value.numerator, value.denominator)


def value(terms: TermSet, name: str, letters: dict[str, int], parts: dict[str, Fraction]) -> Fraction:
    """A term with numbers for its letters and for other terms."""
    known: dict[Symbol, Expr] = {symbol(letter): Integer(number) for letter, number in letters.items()}
    known |= {terms[part].symbol: rational(number) for part, number in parts.items()}
    number = terms[name].expression.xreplace(known).doit()
    return Fraction(int(number.p), int(number.q))


def test_optimizer_on_the_host() -> None:
    draw, terms = Random(1), build_all(MEGATRON.with_choices(optimizer_offload="cpu"))
    for _ in range(60):
        copied, updated, own = (Fraction(draw.randint(0, 40), draw.randint(1, 9)) for _ in range(3))
        parts = {"stage.host_copy_time": copied, "stage.host_update_time": updated, "stage.beside_host_time": own}
        cuts = sorted(Fraction(draw.randint(1, 99), 100) for _ in range(draw.randint(0, 4)))
        shares = [after - before for before, after in zip([Fraction(0), *cuts], [*cuts, Fraction(1)], strict=True)]
        played = hybrid_step(shares, copied, updated, own, overlapped=False)
        assert own + value(terms, "stage.host_waiting", {"oh": 0}, parts) == played


def test_overlap_hides_the_gradients_of_many_parameters() -> None:
    """With n equal parameters the formula leaves out no more than the copy of one, and what waits for the GPU."""
    draw, terms = Random(2), build_all(MEGATRON.with_choices(optimizer_offload="cpu"))
    for _ in range(30):
        copied, updated, own = (Fraction(draw.randint(1, 40), draw.randint(1, 9)) for _ in range(3))
        parts = {"stage.host_copy_time": copied, "stage.host_update_time": updated, "stage.beside_host_time": own}
        formula = own + value(terms, "stage.host_waiting", {"oh": 1}, parts)
        for number in (10, 200):
            played = hybrid_step([Fraction(1, number)] * number, copied, updated, own, overlapped=True)
            assert abs(played - formula) <= (copied + updated) / number


def test_saved_tensors_leave_and_come_back() -> None:
    draw = Random(3)
    terms = build_all(MEGATRON.with_choices(activation_offload="layers", peak="saved"))
    stalled = 0
    for _ in range(200):
        layers = draw.randint(2, 12)
        moved = draw.randrange(layers)
        forward, backward, copy = (Fraction(draw.randint(1, 40), draw.randint(1, 9)) for _ in range(3))
        known = {"L": layers, "ol": moved}
        parts = {"layer.forward_time": forward, "layer.backward_time": backward, "layer.copy_time": copy}
        waits = [value(terms, f"layer.{way}_copy_waiting", known, parts) for way in ("forward", "backward")]
        assert (layers * forward + waits[0], layers * backward + waits[1]) == offloaded_pass(
            layers, moved, forward, backward, copy)
        stalled += any(waits)
    assert 20 < stalled < 180


@pytest.mark.parametrize("offload", [
    {"optimizer_offload_percent": 10}, {"optimizer_offload_percent": 100}, {"cpu_offloading_num_layers": 31},
])
def test_offload_is_never_faster(offload: dict[str, int]) -> None:
    plain = shardmath.explain(MODEL, GPU, **JOB).time
    for further in ({}, {"overlap_cpu_optimizer_d2h_h2d": 1}):
        own = shardmath.explain(MODEL, GPU, **JOB, **offload, **further).time
        assert plain is not None
        assert own is not None
        assert own.seconds > plain.seconds


def test_global_parameters_on_the_host_are_copied_three_times() -> None:
    groups = {"num_gpus": 64, "tensor_parallel": 4, "global_batch_size": 512, "data_parallel_replicas": 4}
    times = [shardmath.explain(MODEL, GPU, **groups, inner_steps=10, kernels={"local_updates": option}).time
             for option in ("diloco", "diloco_host")]
    here, there = (time.spent["outer"] for time in times if time is not None)
    assert (there - here) * 10 == pytest.approx(3 * 4 * 8_030_261_248 / 16 / (64e9 * 0.85), rel=1e-2)


def test_bytes_on_the_host_are_shown() -> None:
    account = shardmath.explain(MODEL, GPU, **JOB, optimizer_offload_percent=100)
    assert account.peak.host == 16 * 8_030_261_248 // 8
    assert account.host_bytes == 16 * 8_030_261_248
    assert "On the host: 14.96 GiB of that rank, 119.66 of 2048.00 GiB of a server." in str(account)
    assert shardmath.explain(MODEL, GPU, **JOB).peak.host == 0


def test_seconds_of_a_step() -> None:
    """Adding up what a step of Llama-3.1-8B copies and streams, by hand: 8,030,261,248 parameters over 8 ranks."""
    found = shardmath.explain(MODEL, GPU, **JOB, optimizer_offload_percent=100).time
    assert found is not None
    moved = 8_030_261_248 / 8
    link, memory = 64e9 * 0.85, 614.4e9 / 8 * 0.8
    update = 28 * moved / memory  # nothing stays on the GPU
    assert found.spent["host"] == pytest.approx(2 * 4 * moved / link + update, rel=1e-3)


def test_figures_of_the_host() -> None:
    slow = {"gpu": {"like": GPU, "pcie_mb_per_s": 16_000}, "gpus_per_node": 8}
    fast = {"gpu": GPU, "parameters": {"host_copy_bandwidth": 10**12, "host_memory_bandwidth": 10**12}}
    of_slow, of_usual, of_fast, asked = (
        shardmath.explain(MODEL, gpu, **JOB, optimizer_offload_percent=100, **own).time
        for gpu, own in ((cluster_of({"name": "slow", **slow}), {}), (GPU, {}), (cluster_of({"name": "x", **fast}), {}),
                         (GPU, {"host_copy_bandwidth": 10**12, "host_memory_bandwidth": 10**12}))
    )
    assert of_slow.seconds > of_usual.seconds > of_fast.seconds == asked.seconds  # type: ignore[union-attr]
    unknown = shardmath.explain(MODEL, "a100-pcie-80gb", **JOB, optimizer_offload_percent=100)
    assert unknown.time is None
    assert "gpu.host_mb_per_s = absent: must be given in a cluster file" in unknown.time_unknown


def test_a_host_that_is_too_small() -> None:
    small = cluster_of({"name": "small", "gpu": {"like": GPU, "host_memory_gib": 60}})
    with pytest.raises(InputError, match="120 GiB, within the 60 GiB of its host; nearest legal: 50") as error:
        shardmath.explain(MODEL, small, **JOB, optimizer_offload_percent=100)
    assert error.value.field == "optimizer_offload_percent"
    assert shardmath.explain(MODEL, small, **JOB, optimizer_offload_percent=50).time is not None
    with pytest.raises(InputError, match="must keep what the GPUs of a server offload"):
        shardmath.explain(MODEL, small, num_gpus=8, cpu_offloading_num_layers=8)
