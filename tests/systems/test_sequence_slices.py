"""Token-level pipelines: waits and slices in flight against a pipeline that is played, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from oracles.pipelines.token_pipeline import order, play
from sympy import Expr, Integer, Rational, Symbol

import shardmath
from shardmath.account.slicing import best_lengths
from shardmath.errors import InputError
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parameters import symbol
from shardmath.symbolic.slicing import passes_seconds
from shardmath.symbolic.timing import build_all

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs" / "systems"
JOB: dict[str, Any] = {"num_gpus": 8, "pipeline_parallel": 8, "global_batch_size": 8, "seq_length": 16384}


def value(option: str, name: str, known: dict[Symbol, Expr]) -> Fraction:
    """A term of rank r with some symbols and terms known."""
    terms = build_all(MEGATRON.with_choices(slices=option, peak="saved"))
    expression = terms[name].expression.xreplace(known)
    while inner := {part: terms.by_symbol[part].expression.xreplace(known)
                    for part in expression.free_symbols if part in terms.by_symbol}:
        expression = expression.xreplace(inner)
    result = expression.doit()
    return Fraction(int(result.p), int(result.q))


@pytest.mark.parametrize("option", ["tokens", "1f1b"])
def test_waits(option: str) -> None:
    draw, core = Random(1), build_all(MEGATRON.with_choices(slices=option, peak="saved"))
    for _ in range(60):
        ranks, sequences, slices, layers = (draw.randint(1, most) for most in (6, 5, 8, 3))
        linear, attention = ([Fraction(draw.randint(0, 20), draw.randint(1, 9)) for _ in range(2)] for _ in range(2))
        # Slice i of n attends to i - 1/2 slices, n/2 on average.
        passes = [[linear[way] + layers * attention[way] * (2 * part + 1) / slices for part in range(slices)]
                  for way in range(2)]
        work = sequences * sum(sum(seconds) for seconds in passes)
        average = sum(sum(seconds) for seconds in passes) / slices
        known: dict[Symbol, Expr] = {
            symbol("p"): Integer(ranks), symbol("m"): Integer(sequences), symbol("sn"): Integer(slices),
            symbol("L"): Integer(layers * ranks), symbol("rcore"): Integer(0),
            symbol("rfull"): Integer(0),
            **{core[f"attention.{name}"].symbol: Rational(seconds.numerator, seconds.denominator)
               for name, seconds in zip(("core_time", "core_backward_time"), attention, strict=True)},
        }
        waited = play(option, ranks, sequences, *passes) - work - (ranks - 1) * average
        assert value(option, "stage.slices_waiting", known) == waited


@pytest.mark.parametrize("option", ["tokens", "1f1b"])
def test_slices_in_flight(option: str) -> None:
    for ranks in range(1, 6):
        for sequences in range(1, 5):
            for slices in range(1, 6):
                for rank in range(ranks):
                    held, most = 0, 0
                    for action in order(option, ranks, sequences, slices, rank):
                        held += -1 if action.backward else 1
                        most = max(most, held)
                    known = dict(zip(map(symbol, ("p", "m", "sn", "r")),
                                     map(Integer, (ranks, sequences, slices, rank)), strict=True))
                    assert value(option, "in_flight", known) == most
                    if rank == ranks - 1:
                        assert value(option, "in_flight_loss", known) == most


def test_best_lengths_are_those_of_all_cuts() -> None:
    draw = Random(2)
    for _ in range(60):
        units, ranks, sequences = draw.randint(1, 8), draw.randint(1, 6), draw.randint(1, 4)
        slices = draw.randint(1, units)
        table = {(length, start): float(draw.randint(1, 30))
                 for length in range(1, units + 1) for start in range(units)}

        def total(lengths: tuple[int, ...], table: dict[tuple[int, int], float] = table) -> list[float]:
            return [table[length, sum(lengths[:number])] for number, length in enumerate(lengths)]

        cuts = [lengths for lengths in product(range(1, units + 1), repeat=slices) if sum(lengths) == units]
        best = best_lengths(lambda length, start, table=table: table[length, start], units, slices, ranks, sequences)
        assert best in cuts
        least = min(passes_seconds(total(lengths), ranks, sequences) for lengths in cuts)
        assert passes_seconds(total(best), ranks, sequences) == least
        halves = [Fraction(int(seconds), 2) for seconds in total(best)]
        assert play("tokens", ranks, sequences, halves, halves) == least


def test_later_slices_are_shorter_and_the_step_too() -> None:
    for option in ("tokens", "1f1b"):
        run = shardmath.explain("llama-3.1-8b", "h100-80gb", **{**JOB, "seq_length": 131072}, sequence_slices=8,
                                kernels={"slices": option})
        assert run.slicing is not None
        assert run.time is not None
        assert sum(run.slicing.lengths) == 131072
        assert list(run.slicing.lengths) == sorted(run.slicing.lengths, reverse=True)
        assert run.slicing.seconds < run.time.seconds
        assert run.slicing.exact == (option == "tokens")


def test_one_slice_is_a_plain_pipeline() -> None:
    plain = shardmath.explain("llama-3.1-8b", "h100-80gb", **JOB, kernels={"peak": "saved"})
    sliced = shardmath.explain("llama-3.1-8b", "h100-80gb", **JOB, kernels={"slices": "1f1b"})
    assert sliced.peak_bytes == plain.peak_bytes
    assert sliced.time is not None
    assert plain.time is not None
    assert sliced.time.seconds == pytest.approx(plain.time.seconds)


def test_slices_shorten_the_bubble_or_free_the_first_rank() -> None:
    runs = {(option, slices): shardmath.explain("llama-3.1-8b", "h100-80gb", **JOB, sequence_slices=slices,
                                                kernels={"slices": option})
            for option in ("tokens", "1f1b") for slices in (1, 2, 4, 8)}
    seconds = [run.time.seconds for (option, _), run in runs.items() if option == "tokens" and run.time is not None]
    assert seconds[:3] == sorted(seconds[:3], reverse=True)
    assert seconds[3] > seconds[2]  # attention of short slices is slower than the bubble is long
    first = [run.ranks[0].total for (option, _), run in runs.items() if option == "1f1b"]
    assert first == sorted(first, reverse=True)
    assert len({run.ranks[0].total for (option, _), run in runs.items() if option == "tokens"}) == 1


def test_a_search_tries_numbers_of_slices() -> None:
    searched = shardmath.sweep("llama-3.2-1b", "h100-80gb", num_gpus=4, global_batch_size=4, pipeline_parallel=(4,),
                               tensor_parallel=(1,), sequence_slices=(1, 2, 4), kernels={"slices": "tokens"}, top=50)
    assert {layout.sequence_slices for layout in searched.best} == {1, 2, 4}


@pytest.mark.parametrize(("stages", "printed", "error"), [(48, 5.0, 0.258), (96, 6.75, 0.036)])
def test_speedups_that_the_paper_reports(stages: int, printed: float, error: float) -> None:
    seconds = []
    for slices in (1, 2, 4, 8, 16, 32, 64):
        run = shardmath.explain(
            str(DOCS / "gpt-175b.json"), str(DOCS / "p3.toml"), num_gpus=384, tensor_parallel=384 // stages,
            pipeline_parallel=stages, global_batch_size=2, seq_length=2048, sequence_parallel=False,
            sequence_slices=slices, kernels={"slices": "tokens", "precision": "fp16"},
        )
        assert run.time is not None
        seconds.append(run.time.seconds)
    assert seconds[0] / min(seconds) / printed - 1 == pytest.approx(error, abs=0.001)


def test_long_sequences_fit_that_the_paper_trains() -> None:
    job: dict[str, Any] = {"num_gpus": 64, "tensor_parallel": 8, "pipeline_parallel": 8, "global_batch_size": 16,
                           "seq_length": 65536, "kernels": {"slices": "1f1b"}}
    runs = [shardmath.explain(str(DOCS / "gpt-30b.json"), "a100-80gb", sequence_slices=slices, **job)
            for slices in (1, 4, 8)]
    assert [run.verdict for run in runs] == ["out of memory", "uncertain", "fits"]
    assert [run.rule_80 for run in runs] == ["out of memory", "fits", "fits"]
    assert runs[1].run_out_probability < 0.1


@pytest.mark.parametrize(("asked", "nearest"), [
    ({"sequence_slices": 3}, "2 or 4"),
    ({"sequence_slices": 4, "pipeline_parallel": 4, "context_parallel": 2}, "1"),
    ({"sequence_slices": 4, "pipeline_parallel": 4, "virtual_pipeline": 2}, "1"),
])
def test_refused(asked: dict[str, Any], nearest: str) -> None:
    with pytest.raises(InputError, match=f"nearest legal: {nearest}$"):
        shardmath.explain("llama-3.1-8b", "h100-80gb", **{**JOB, **asked})


@pytest.mark.parametrize("kernels", [
    {"fp8": "delayed"}, {"recompute_method": "block"}, {"tensor_axes": "three"}, {"peak": "megatron_te"},
    {"attention": "unfused"},
])
def test_what_nobody_counted_is_refused(kernels: dict[str, str]) -> None:
    with pytest.raises(InputError, match="not counted yet"):
        shardmath.explain("llama-3.1-8b", "h100-80gb", **JOB, sequence_slices=4, kernels=kernels)


def test_data_parallelism_of_others_refuses_slices() -> None:
    with pytest.raises(InputError, match="must be one of one with torchtitan"):
        shardmath.explain("llama-3.1-8b", "h100-80gb", implementation="torchtitan", **JOB, sequence_slices=4)
