"""Sweeps against the same space counted in plain Python and fractions, one layout at a time."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath import Gpu, InputError, Model, SweepResult, load_model, sweep, threads
from shardmath.divisors import divisors
from shardmath.evaluators import find
from shardmath.generated.definitions import RECOMPUTE_MODES
from shardmath.sweeps import engine, run
from shardmath.sweeps.engine import Evaluated
from shardmath.sweeps.ranking import Layout
from shardmath.sweeps.space import Space, layouts

AXES = (
    "tensor_parallel", "context_parallel", "pipeline_parallel", "micro_batch_size", "sequence_parallel", "recompute",
)
SMALL = {"model": "llama-3.2-1b", "gpu": Gpu.custom(24), "num_gpus": 16, "global_batch_size": 32, "seq_length": 4096}
SHORT = {
    **SMALL, "tensor_parallel": [1, 2, 4, 8], "context_parallel": [1, 2], "pipeline_parallel": [1, 2, 4, 8, 16],
    "micro_batch_size": [1, 2], "sequence_parallel": [0, 1], "recompute": ["none", "full"],
}
QUESTIONS: dict[str, dict[str, Any]] = {
    "llama": SMALL,
    "top 3 of a short list": {**SMALL, "top": 3, "pipeline_parallel": [4], "recompute": ["mlp", "none"]},
    "all that fit": {**SMALL, "top": 10_000, "context_parallel": [2], "micro_batch_size": [1, 4]},
    "biases, odd batch": {
        "model": "qwen2.5-0.5b", "gpu": "a100-40gb", "num_gpus": 12, "global_batch_size": 36, "seq_length": 3072,
        "gradients": "bf16", "distributed_optimizer": False, "vocab_multiple": 37, "node_size": 6,
    },
    "query norms": {
        "model": "qwen3-0.6b", "gpu": Gpu.custom(16, 4), "num_gpus": 6, "global_batch_size": 6, "seq_length": 4098,
    },
    "huggingface": {
        "model": "llama-3.2-1b", "gpu": "a100-40gb", "num_gpus": 4, "global_batch_size": 64,
        "seq_length": 4096, "implementation": "huggingface",
    },
    "nothing fits": {**SMALL, "model": "llama-3-70b", "num_gpus": 8},
    "nothing is legal": {**SMALL, "tensor_parallel": [3], "pipeline_parallel": [32]},
    **{
        f"only {axis}": {**SMALL, axis: values}
        for axis, values in zip(AXES, ([8, 2, 2], [4, 1], [16], [2, 3], [1], ["full"]), strict=True)
    },
}


def asked(**question: Any) -> SweepResult:
    return sweep(question.pop("model"), question.pop("gpu"), question.pop("num_gpus"), **question)


def terms_of(result: SweepResult) -> ModuleType:
    """The evaluator in plain Python of an answer."""
    return find(result.implementation).terms


def counted(result: SweepResult, question: Mapping[str, Any]) -> SweepResult:
    """Answer the same question anew: every candidate in the order of the axes, in integers and fractions."""
    gpus, batch, memory = (result.values[name] for name in ("num_gpus", "global_batch_size", "gpu_memory"))
    every = [number for number in range(1, gpus + 1) if gpus % number == 0]
    batches = [number for number in range(1, batch + 1) if batch % number == 0]
    standard = (every, every, every, batches, [0, 1], list(RECOMPUTE_MODES))
    axes = [candidates(question.get(name, usual)) for name, usual in zip(AXES, standard, strict=True)]
    module = terms_of(result)
    broken = Counter[int]()
    legal: list[Layout] = []
    for t, c, p, b, sp, mode in product(*axes):
        layout = {**dict(zip(AXES, (t, c, p, b, sp), strict=False)), **RECOMPUTE_MODES[mode], "pipeline_rank": 0}
        row = {**result.values, **layout, "data_parallel": max(gpus // (t * c * p), 1)}
        met = module.rules_met(**{name: row[name] for name in module.INPUTS})
        if all(met):
            terms = module.terms(**{name: Fraction(row[name]) for name in module.INPUTS})
            first, last, peak = (int(terms[name]) for name in ("first.total", "last.total", "peak"))
            verdict = "fits" if 5 * peak <= 4 * memory else "uncertain" if peak <= memory else "out of memory"
            D = row["data_parallel"]
            legal.append(Layout(t, c, p, D, b, sp, mode, batch // (D * b), first, last, peak, peak / memory, verdict))
        else:
            broken[met.index(False)] += 1
    fit = sorted((layout for layout in legal if layout.verdict == "fits"), key=ranking)
    modes = {mode: next((layout for layout in fit if layout.recompute == mode), None) for mode in axes[-1]}
    verdicts = Counter(layout.verdict for layout in legal)
    return replace(
        result, tried=len(legal) + broken.total(), legal=len(legal),
        broken=tuple(replace(rule, count=broken[place]) for place, rule in enumerate(result.broken)),
        verdicts={name: verdicts[name] for name in ("fits", "uncertain", "out of memory")},
        best=tuple(fit[: question.get("top", 10)]),
        best_by_recompute={mode: layout for mode, layout in modes.items() if layout is not None},
        smallest=min(legal, key=lambda layout: layout.peak_bytes, default=None),
    )


def candidates(values: Sequence[Any]) -> list[Any]:
    return list(values) if isinstance(values[0], str) else sorted(set(values))


def ranking(layout: Layout) -> tuple[int, int, int]:
    """Least model-parallel size, then the largest margin, then the larger micro-batch."""
    ranks = layout.tensor_parallel * layout.context_parallel * layout.pipeline_parallel
    return ranks, layout.peak_bytes, -layout.micro_batch_size


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_sweep_counts_what_plain_python_counts(question: dict[str, Any]) -> None:
    result = asked(**question)
    assert result == counted(result, question)
    assert result.tried == result.legal + sum(rule.count for rule in result.broken)
    assert result.legal == sum(result.verdicts.values())
    assert [(rule.name, rule.field, rule.text) for rule in result.broken] == list(
        terms_of(result).RULES
    )


def test_the_questions_have_every_kind_of_answer() -> None:
    results = {name: asked(**question) for name, question in QUESTIONS.items()}
    assert all(results["llama"].verdicts.values())
    assert results["llama"].best_by_recompute.keys() == RECOMPUTE_MODES.keys()
    assert 10 < len(results["all that fit"].best) == results["all that fit"].verdicts["fits"]
    assert results["huggingface"].best_by_recompute.keys() == {"none", "full"}
    assert (results["nothing fits"].best, results["nothing fits"].best_by_recompute) == ((), {})
    assert results["nothing fits"].smallest
    assert (results["nothing is legal"].legal, results["nothing is legal"].smallest) == (0, None)


@pytest.mark.parametrize("size", [1, 7, 320, 319])
def test_chunk_borders_change_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked(**SHORT)
    assert whole.tried == 320
    monkeypatch.setattr(engine, "CHUNK", size)
    assert asked(**SHORT) == whole


@pytest.mark.parametrize("answer", ["best", "smallest", "best_by_recompute"])
def test_of_equal_layouts_the_first_wins_wherever_chunks_end(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_whole_gib(*arguments: Any) -> Iterator[Evaluated]:
        for chunk in engine.evaluated(*arguments):
            yield replace(chunk, peak=np.ceil(chunk.peak / 2**30) * 2**30)

    monkeypatch.setattr(run, "evaluated", in_whole_gib)
    question = {**SHORT, "tensor_parallel": [2, 4], "context_parallel": [2, 4]}
    whole = getattr(asked(**question), answer)
    for size in (1, 7, 159):
        monkeypatch.setattr(engine, "CHUNK", size)
        assert getattr(asked(**question), answer) == whole


def test_progress_and_chunks_are_handed_out_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    progress: list[tuple[int, int]] = []
    chunks: list[Evaluated] = []
    modes: set[tuple[str, ...]] = set()

    def take(chunk: Evaluated, names: tuple[str, ...]) -> None:
        assert len(progress) == len(chunks)
        chunks.append(chunk)
        modes.add(names)

    monkeypatch.setattr(engine, "CHUNK", 100)
    result = asked(**SHORT, on_chunk=take, progress=lambda done, tried: progress.append((done, tried)))
    assert progress == [(100, 320), (200, 320), (300, 320), (320, 320)]
    assert modes == {("none", "full")}
    assert sum(np.count_nonzero(chunk.rule == 0) for chunk in chunks) == result.legal
    every = Space(16, {axis: tuple(SHORT[axis]) for axis in AXES}).columns(0, 320)
    for name, column in every.items():
        assert (np.concatenate([chunk.columns[name] for chunk in chunks]) == column).all()
    best = min(chunk.peak[chunk.verdict == 0].min() for chunk in chunks if (chunk.verdict == 0).any())
    assert result.smallest is not None
    assert best == result.smallest.peak_bytes


def test_few_chunks_exist_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[int] = []
    ahead: list[int] = []

    class Counting(ThreadPoolExecutor):
        def submit(self, *arguments: Any) -> Any:
            submitted.append(1)
            return super().submit(*arguments)

    monkeypatch.setattr(engine, "CHUNK", 1)
    monkeypatch.setattr(threads, "ThreadPoolExecutor", Counting)
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 3)
    asked(**SHORT, on_chunk=lambda chunk, _: ahead.append(len(submitted) - len(ahead)))
    assert len(submitted) == len(ahead) == 320
    assert max(ahead) == 7


@pytest.mark.parametrize("callback", ["progress", "on_chunk"])
def test_an_error_in_a_callback_ends_the_sweep(callback: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CHUNK", 7)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        asked(**SHORT, **{callback: fail})


def test_columns_are_the_product_of_the_axes() -> None:
    space = layouts(12, 6, {"context_parallel": (1, 5)}, ("full", "none"))
    columns = space.columns(0, space.size)
    degrees = (1, 2, 3, 4, 6, 12)
    rows = list(product(degrees, (1, 5), degrees, (1, 2, 3, 6), (0, 1), (0, 1)))
    assert space.size == len(rows)
    assert list(zip(*(columns[axis] for axis in AXES), strict=True)) == rows
    for t, c, p, D in zip(*(columns[axis] for axis in AXES[:3]), columns["data_parallel"], strict=True):
        assert max(12 // (t * c * p), 1) == D
    assert (columns["recompute_full"] == 1 - columns["recompute"]).all()
    assert not columns["recompute_mlp"].any()
    part = space.columns(50, 61)
    assert all((part[name] == column[50:61]).all() for name, column in columns.items())


@given(st.integers(1, 5000))
def test_divisors(number: int) -> None:
    assert list(divisors(number)) == [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def test_the_values_are_those_of_model_gpu_and_implementation() -> None:
    model, values = load_model("llama-3.2-1b"), asked(**SHORT).values
    assert {name: values[name] for name in ("hidden_size", "head_dim", "tied_embeddings", "vocab_size")} == {
        "hidden_size": model.hidden_size, "head_dim": 64, "tied_embeddings": 1, "vocab_size": 128256,
    }
    assert {name: values[name] for name in ("num_gpus", "gpu_memory", "node_size", "vocab_multiple")} == {
        "num_gpus": 16, "gpu_memory": 24 * 2**30, "node_size": 8, "vocab_multiple": 128,
    }


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"top": 0}, "top"), ({"top": True}, "top"), ({"top": 1.5}, "top"), ({"tensor_parallel": []}, "tensor_parallel"),
     ({"micro_batch_size": [0]}, "micro_batch_size"), ({"sequence_parallel": [2]}, "sequence_parallel"),
     ({"recompute": []}, "recompute"), ({"recompute": ["half"]}, "recompute"), ({"num_gpus": 0}, "num_gpus"),
     ({"global_batch_size": 1.5}, "global_batch_size"), ({"implementation": "none"}, "implementation")],
    ids=str,
)
def test_what_is_not_legal_is_refused(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(**{**SHORT, **wrong})
    assert caught.value.field == field


@pytest.mark.parametrize("layers", [2**11, 2**13])
def test_a_model_too_large_for_exact_arithmetic_is_refused(layers: int) -> None:
    sizes = {"hidden_size": 2**16, "ffn_hidden_size": 2**16, "num_layers": layers}
    model = Model(**{**load_model("llama-3.2-1b").model_dump(), **sizes})
    question = {**SHORT, "model": model, "num_gpus": 1, "global_batch_size": 2}
    if layers == 2**11:
        assert asked(**question).smallest
    else:
        with pytest.raises(InputError, match="512 TiB"):
            asked(**question)
