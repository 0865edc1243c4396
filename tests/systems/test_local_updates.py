"""Local updates: the mean wait of a round, played step by step, and layouts that are refused."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from sympy import Integer, Rational, Symbol

import shardmath
from shardmath.errors import InputError
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parameters import symbol
from shardmath.symbolic.timing import build_all

pytestmark = pytest.mark.slow
JOB = {"num_gpus": 64, "tensor_parallel": 4, "global_batch_size": 512}


def played(
    every: int, fragments: int, overlap: int, step: Fraction, reducing: Fraction, updating: Fraction,
) -> Fraction:
    """Mean wait of a step, if fragments take turns and leave ``overlap`` steps before they must be back."""
    now, back, waited = Fraction(0), Fraction(0), Fraction(0)
    for number in range(1, every + 1):
        now += step
        if (number + overlap) % (every // fragments) == 0:
            back = now + reducing
        if number % (every // fragments) == 0:
            late = max(Fraction(0), back - now) + updating
            now += late
            waited += late
    return waited / every


def test_mean_wait() -> None:
    draw, terms = Random(1), build_all(MEGATRON.with_choices(local_updates="diloco"))
    for _ in range(40):
        fragments, turn = draw.randint(1, 4), draw.randint(1, 5)
        overlap = draw.randint(0, turn - 1)
        step, reducing, updating = (Fraction(draw.randint(0, 30), draw.randint(1, 9)) for _ in range(3))
        known: dict[Symbol, Rational] = {
            symbol("H"): Integer(fragments * turn), symbol("fr"): Integer(fragments), symbol("lt"): Integer(overlap),
            symbol("m"): Integer(1),
            **{terms[f"stage.{name}"].symbol: Rational(value.numerator, value.denominator) for name, value in
               {"microbatch_time": step, "outer_reducing": reducing, "outer_updating": updating}.items()},
        }
        mean = terms["stage.outer_waiting"].expression.xreplace(known).doit()
        assert Fraction(int(mean.p), int(mean.q)) == played(
            fragments * turn, fragments, overlap, step, reducing, updating)


def test_gradients_of_groups_stay_inside() -> None:
    plain = shardmath.explain("llama-3.1-8b", "h100-80gb", **JOB, data_parallel_replicas=4)
    rare = shardmath.explain("llama-3.1-8b", "h100-80gb", **JOB, data_parallel_replicas=4, inner_steps=10**6)
    assert plain.time is not None
    assert rare.time is not None
    assert rare.time.spent["data"] < plain.time.spent["data"]
    assert rare.time.spent["optimizer"] == pytest.approx(plain.time.spent["optimizer"])
    assert rare.time.seconds < plain.time.seconds


@pytest.mark.parametrize(("asked", "nearest"), [
    ({"inner_steps": 10}, "2"),
    ({"inner_steps": 10, "data_parallel_replicas": 4, "fragments": 3}, "2 or 5"),
    ({"inner_steps": 10, "data_parallel_replicas": 4, "fragments": 5, "outer_overlap_steps": 2}, "1"),
    ({"inner_steps": 10, "data_parallel_replicas": 4, "outer_gradient_bits": 5}, "4 or 8"),
])
def test_refused(asked: dict[str, int], nearest: str) -> None:
    with pytest.raises(InputError, match=f"nearest legal: {nearest}$"):
        shardmath.explain("llama-3.1-8b", "h100-80gb", **JOB, **asked)


def test_what_nobody_counted_is_refused() -> None:
    for kernels in ({"optimizer": "sgd"}, {"precision": "bf16"}):
        with pytest.raises(InputError, match="not counted yet"):
            shardmath.explain("llama-3.1-8b", "h100-80gb", **JOB, data_parallel_replicas=4, inner_steps=4,
                              kernels=kernels)
    with pytest.raises(InputError, match="fragments"):
        shardmath.explain("llama-3.1-8b", "h100-80gb", **JOB, data_parallel_replicas=4, fragments=2,
                          kernels={"local_updates": "average"})
