"""Options of the compiler: chosen by a measurement that is kept, and none of them changes a number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from platform import machine
from types import ModuleType

import numpy as np
import pytest

from shardmath.compiler.native import measured, options, trial
from shardmath.compiler.native.functions import translated
from shardmath.compiler.native.objects import Native, native
from shardmath.compiler.native.options import Options, has, quickest, usual
from shardmath.compiler.native.values import ELEMENTS
from shardmath.compiler.nesting import nest_of
from shardmath.files.cached import module_of, source_of
from shardmath.search.nests import compiled as nests
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.posing import evaluator_source, posing_of, verdict_source
from shardmath.search.spaces import Best, Part, Rows, Space

#: Every configuration with its bytes and its time, and the quickest.
ASKED = (Best("best", ("step.time", "peak"), 5, (), "legal"), Rows(of=("step.time",), among="legal"))
#: Words of LLVM for arithmetic that may be rounded otherwise.
_FAST = r"\b(fast|reassoc|contract|nnan|ninf|nsz|arcp|afn)\b"


def every() -> list[Options]:
    """All options that this processor has: each switch of LLVM with each kind of loop."""
    widths = ((), ("+prefer-256-bit",), ("-prefer-256-bit",)) if has("avx512f") else ((),)
    gathers = (("-prefer-no-gather",), ("+prefer-no-gather",)) if has("avx2") else ((),)
    masks = (True, False) if has("avx512f") else (False,)
    loops = ((False, False), (True, False), (False, True), (True, True))
    return [Options((*width, *gather), mask, *loop) for width, gather, mask, loop in product(
        widths, gathers, masks, loops)]


def chosen(seconds: dict[str, list[float]]) -> tuple[Options, list[list[Options]]]:
    """The quickest where some options, by a word in them, take these seconds, and what was compared."""
    asked: list[list[Options]] = []

    def timed(candidates: Sequence[Options]) -> list[list[float]]:
        asked.append(list(candidates))
        return [
            next((taken for word, taken in seconds.items() if word in repr(item)), [1.0, 1.1, 1.2])
            for item in candidates
        ]

    return quickest(usual(), timed), asked


def test_the_usual_options_stay_without_a_clear_margin() -> None:
    assert chosen({})[0] == usual()
    assert chosen({"unrolling=True": [0.95, 1.0, 1.1]})[0] == usual()
    one_lucky_run = {"unrolling=True": [0.5, 1.1, 1.2]}
    assert chosen(one_lucky_run)[0] == usual()


def test_what_wins_clearly_is_chosen() -> None:
    quick = {"unrolling=True": [0.8, 0.9, 1.0]}
    assert chosen(quick)[0] == Options(usual().features, usual().masks, unrolling=True)


def test_loops_are_compared_with_the_features_that_won(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "has", lambda feature: True)
    features = ("+prefer-256-bit", "+prefer-no-gather")
    found, (first, second) = chosen({repr(features): [0.5, 0.5, 0.5]})
    assert found == second[0] == Options(features, usual().masks)
    assert len(first) == 5
    assert {item.features for item in second} == {features}


def test_a_processor_without_vectors_has_no_rivals_of_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "has", lambda feature: False)
    _, asked = chosen({})
    assert [len(candidates) for candidates in asked] == [3 + usual().masks]


@pytest.fixture
def measurable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of its own, and no choice that this process remembers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(measured.VARIABLE)
    measured.quickest_here.cache_clear()
    yield
    measured.quickest_here.cache_clear()


@pytest.mark.usefixtures("measurable")
def test_what_was_measured_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    unrolled = {"unrolling=True": [0.8, 0.8]}

    def timed(candidates: Sequence[Options]) -> list[list[float]]:
        return [next((taken for word, taken in unrolled.items() if word in repr(item)), [1.0, 1.0])
                for item in candidates]

    monkeypatch.setattr(measured, "timed", timed)
    first = measured.quickest_here()
    assert first.unrolling
    measured.quickest_here.cache_clear()
    monkeypatch.setattr(measured, "timed", lambda _: pytest.fail("measured once more"))
    assert measured.quickest_here() == first
    measured.quickest_here.cache_clear()
    monkeypatch.setattr(measured, "made_by", lambda: ("another",))
    with pytest.raises(pytest.fail.Exception, match="once more"):
        measured.quickest_here()


@pytest.mark.usefixtures("measurable")
def test_nothing_is_measured_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "timed", lambda _: pytest.fail("measured"))
    monkeypatch.setenv(measured.VARIABLE, "usual")
    assert measured.quickest_here() == usual()


@pytest.mark.slow
def test_each_candidate_runs_as_often() -> None:
    taken = measured.timed([usual(), Options()])
    assert [len(seconds) for seconds in taken] == [40, 40]
    assert all(second > 0 for seconds in taken for second in seconds)


@pytest.mark.slow
def test_only_large_parts_are_compiled_with_what_was_measured() -> None:
    small = timed_part()
    assert nests._native_for(small).keywords == {"options": usual}
    assert nests._native_for(replace(small, size=10**8)).keywords == {"options": measured.quickest_here}


def timed_part() -> Part:
    """A part with every time and number of bytes as a row."""
    (part,) = Space(
        axes={"tensor_parallel": [1, 2], "micro_batch_size": [1, 2, 3], "recompute": ["none", "core_attention", "full"],
              "seq_length": [2048, 4096, 6144], "pipeline_parallel": [1, 2, 4], "sequence_parallel": [0, 1]},
        model="llama-3.2-1b", gpu="a100-40gb", fixed={"num_gpus": 8, "global_batch_size": 24}, questions=ASKED,
    ).parts()
    return part


@pytest.mark.slow
def test_no_option_changes_a_bit_of_bytes_or_times(tmp_path: Path) -> None:
    part = timed_part()
    posing = posing_of(part, ASKED, literal=True)
    path = tmp_path / "nest.py"
    path.write_text(nest_of("timed", posing, evaluator_source(part), verdict_source()))
    module = module_of(f"timed_{tmp_path.name}", path)
    answers = []
    for item in every()[::7]:  # each switch, with several of the others
        nest = CompiledNest(part, ASKED, module, partial(native, options=partial(Options, **asdict(item))))
        table = nest.table(0, nest.shards)
        answer = nest.swept(0, nest.shards, nest.empty(), table)
        assert table is not None
        arrays = [answer.broken, answer.verdicts, *(array for found in answer.questions for array in found.arrays)]
        answers.append([array.tobytes() for array in (*arrays, *table.cut(0, len(table)).arrays)])
    assert len(table) > 100
    times = table.cut(0, len(table)).values[:, -1]
    assert len({*times.tolist()}) > 20
    assert any(Fraction(time).denominator > 2**20 for time in times.tolist())
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.slow
def test_loops_that_are_measured_give_the_same_with_all_options() -> None:
    expected = measured.trial_arguments(3)
    evaluated = trial.sweep(*expected)
    for item in every():
        arguments = measured.trial_arguments(3)
        assert Native(trial, "sweep", partial(Options, **asdict(item)))(*arguments) == evaluated
        for one, other in zip(arguments[1:], expected[1:], strict=True):
            assert np.array_equal(one, other)


def test_no_instruction_may_be_rounded_otherwise() -> None:
    """LLVM changes no number without leave: a product is fused with a sum only where that is said of both."""
    kinds = [(ELEMENTS[kind], dimensions) for kind, dimensions in (
        ("int64", 0), ("int64", 1), ("float64", 1), ("float64", 1), ("float64", 1), ("float64", 1), ("int64", 1))]
    text = str(translated(vars(trial), source_of(trial), "sweep", kinds, masks=True))
    assert "llvm.fmuladd.f64" in text
    assert "fdiv" in text
    assert not re.search(_FAST, text)


SUMS = '''
def sweep(a, b, c, out) -> None:
    for i in range(a.size):
        out[i, 0] = a[i]*b[i] + c[i]
        out[i, 1] = c[i] + a[i]*b[i]
        out[i, 2] = a[i]*b[i] - c[i]
        out[i, 3] = c[i] - a[i]*b[i]
        out[i, 4] = a[i]*b[i] + c[i]*c[i]
        out[i, 5] = 3*i + i*i - 2*i
        product = a[i]*b[i]
        out[i, 6] = product + c[i]
'''


@pytest.mark.slow
def test_sums_of_products_are_rounded_once_or_as_python_does(tmp_path: Path) -> None:
    path = tmp_path / "sums.py"
    path.write_text(SUMS)
    module: ModuleType = module_of(f"sums_{tmp_path.name}", path)
    draw = np.random.default_rng(7)
    a, b, c = (draw.uniform(-1, 1, 100) for _ in range(3))
    results = []
    for item in every():
        out = np.zeros((100, 7))
        Native(module, "sweep", partial(Options, **asdict(item)))(a, b, c, out)
        results.append(out)
    assert all(out.tobytes() == results[0].tobytes() for out in results)
    is_fused = has("fma") or machine() in ("aarch64", "arm64")
    for row, x, y, z in zip(results[0].tolist(), a.tolist(), b.tolist(), c.tolist(), strict=True):
        product = Fraction(x) * Fraction(y) if is_fused else Fraction(x * y)
        added, square = Fraction(z), Fraction(z * z)
        expected = product + added, product + added, product - added, added - product, product + square
        assert row[:5] == [float(number) for number in expected]
        assert row[6] == x * y + z
    assert results[0][:, 5].tolist() == [float(i + i * i) for i in range(100)]
