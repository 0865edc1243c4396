"""Sweeps against the same space counted in plain Python and fractions, one layout at a time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from itertools import product
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath import Gpu, InputError, Model, SweepResult, load_model, sweep
from shardmath.compiler.evaluators import find
from shardmath.divisors import divisors
from shardmath.generated.definitions import RECOMPUTE_MODES, run_out_probability
from shardmath.search import legal
from shardmath.search.layout import Layout
from shardmath.search.nests import running
from shardmath.symbolic.implementations import IMPLEMENTATIONS

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
        "model": "llama-3.2-1b", "gpu": "a100-80gb", "num_gpus": 4, "global_batch_size": 64,
        "seq_length": 4096, "implementation": "huggingface", "kernels": {"peak": "saved"},
    },
    "ties": {**SMALL, "seq_length": 64, "tensor_parallel": [1], "context_parallel": [1], "micro_batch_size": [1]},
    "nothing fits": {**SMALL, "model": "llama-3-70b", "num_gpus": 8},
    "nothing is legal": {**SMALL, "tensor_parallel": [3], "pipeline_parallel": [32]},
    **{
        f"only {axis}": {**SMALL, axis: values}
        for axis, values in zip(AXES, ([8, 2, 2], [4, 1], [16], [2, 3], [1], ["full"]), strict=True)
    },
}


#: Stages of one chunk and of one size, which one evaluator knows: other spaces are in ``test_spaces_standard``.
PLAIN = {"virtual_pipeline": [1], "account_for_embedding": 0}


def asked(**question: Any) -> SweepResult:
    question = {**PLAIN, **question}
    return sweep(question.pop("model"), question.pop("gpu"), question.pop("num_gpus"), **question)


def terms_of(result: SweepResult) -> ModuleType:
    """The evaluator in plain Python of an answer."""
    return find(result.implementation).terms


def counted(result: SweepResult, question: Mapping[str, Any]) -> tuple[SweepResult, list[Layout]]:
    """Answer the same question anew: every candidate in the order of the axes, in integers and fractions.

    A broken rule is the first one in the order in which the answer lists them. Also all legal layouts, in order.
    """
    gpus, batch, memory = (result.values[name] for name in ("num_gpus", "global_batch_size", "gpu_memory"))
    every = [number for number in range(1, gpus + 1) if gpus % number == 0]
    batches = [number for number in range(1, batch + 1) if batch % number == 0]
    modes = ["none", "full"] if result.implementation == "huggingface" else list(RECOMPUTE_MODES)
    standard = (every, every, every, batches, [0, 1], modes)
    axes = [candidates(question.get(name, usual)) for name, usual in zip(AXES, standard, strict=True)]
    module = terms_of(result)
    rules = [name for name, _, _ in module.RULES]
    tried = [rule.name for rule in result.broken]
    broken = Counter[str]()
    layouts: list[Layout] = []
    for t, c, p, b, sp, mode in product(*axes):
        layout = {**dict(zip(AXES, (t, c, p, b, sp), strict=False)), **RECOMPUTE_MODES[mode], "pipeline_rank": 0}
        row = {**result.values, **layout, "data_parallel": Fraction(gpus, t * c * p)}
        met = dict(zip(rules, module.rules_met(**{name: row[name] for name in module.INPUTS}), strict=True))
        met["data_parallel"] = gpus % (t * c * p) == 0
        if all(met.values()):
            row["data_parallel"] = gpus // (t * c * p)
            terms = module.terms(*(row[name] for name in module.INPUTS))
            first, last, peak = (int(terms[name]) for name in ("first.total", "last.total", "peak"))
            rule = "fits" if 5 * peak <= 4 * memory else "uncertain" if peak <= memory else "out of memory"
            D = gpus // (t * c * p)
            groups = sum(size > 1 for size in (t, c, p, D * c, row["expert_parallel"]))
            reserved = reserved_by_hand(result.implementation, t, peak, terms)
            process = reserved + row["context_bytes"] + groups * row["communicator_bytes"]
            chance = run_out_probability(peak, process, memory)
            fits = 10**6 * process <= row["process_parts"] * (memory - memory % 10**6)
            assert fits == (chance < 0.01)
            verdict = "fits" if fits else "uncertain" if peak <= memory else "out of memory"
            layouts.append(Layout(t, c, p, D, b, sp, mode, batch // (D * b), first, last, peak, peak / memory, verdict,
                                  rule, chance, 1, 1, *_times(result, row),
                                  expert_tensor_parallel=row["expert_tensor_parallel"]))
        else:
            broken[next(name for name in tried if not met[name])] += 1
    fit = sorted((layout for layout in layouts if layout.verdict == "fits"), key=ranking)
    by_mode = {mode: next((layout for layout in fit if layout.recompute == mode), None) for mode in axes[-1]}
    verdicts = Counter(layout.verdict for layout in layouts)
    answer = replace(
        result, tried=len(layouts) + broken.total(), legal=len(layouts),
        broken=tuple(replace(rule, count=broken[rule.name]) for rule in result.broken),
        verdicts={name: verdicts[name] for name in ("fits", "uncertain", "out of memory")},
        best=tuple(fit[: question.get("top", 10)]),
        best_by_recompute={mode: layout for mode, layout in by_mode.items() if layout is not None},
        smallest=min(layouts, key=lambda layout: layout.peak_bytes, default=None),
    )
    return answer, layouts


def reserved_by_hand(implementation: str, tensor_parallel: int, peak: int, terms: Mapping[str, Any]) -> int:
    """Bytes reserved on the rank with the peak."""
    known = IMPLEMENTATIONS[implementation].reserved
    streams = moment = 0
    shares = known.shares
    if known.moment:
        end = next(end for end in ("first", "last", "penultimate", "second", "stage")
                   if f"{end}.total" in terms and terms[f"{end}.total"] == peak)
        sizes = [int(terms[f"{end}.{name}"]) for name in known.moment if f"{end}.{name}" in terms]
        streams, moment = int(terms.get(f"{end}.beyond_streams", 0)), sum(sizes)
        shares = known.shares if sizes or not known.saved else known.saved
    share = shares[min(tensor_parallel, 3) - 1].usual
    return max(peak, -(-(share * (peak + streams) + known.weight * moment) // 1000))


def _times(result: SweepResult, row: Mapping[str, Any]) -> tuple[float, ...]:
    """Step time and rates, where the machine's figures are known; rounded once, at the end."""
    module = find(result.implementation).times
    if "matmul_flops" not in result.values:
        return ()
    terms = module.terms(*(row[name] for name in module.INPUTS))
    return tuple(float(terms[f"step.{name}"])
                 for name in ("time", "tokens_per_second_per_gpu", "mfu", "cost_per_token"))


def candidates(values: Sequence[Any]) -> list[Any]:
    return list(values) if isinstance(values[0], str) else sorted(set(values))


def ranking(layout: Layout) -> tuple[float, int, int]:
    """Least time or model-parallel size, then the largest margin, then the larger micro-batch."""
    ranks = layout.tensor_parallel * layout.context_parallel * layout.pipeline_parallel
    first = ranks if layout.step_seconds is None else layout.step_seconds
    return first, layout.peak_bytes, -layout.micro_batch_size


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_sweep_counts_what_plain_python_counts(question: dict[str, Any]) -> None:
    result = asked(**question)
    assert rounded(result) == rounded(counted(result, question)[0])
    assert result.tried == result.legal + sum(rule.count for rule in result.broken)
    assert result.legal == sum(result.verdicts.values())


def rounded(result: SweepResult) -> SweepResult:
    """The answer with times to nine digits: sums of floating-point numbers depend on their order."""
    def times(layout: Layout | None) -> Layout | None:
        if layout is None or layout.step_seconds is None:
            return layout
        found = {name: float(f"{getattr(layout, name):.9g}") for name in
                 ("step_seconds", "tokens_per_second_per_gpu", "mfu")}
        return replace(layout, **found)

    return replace(result, best=tuple(map(times, result.best)), smallest=times(result.smallest),
                   best_by_recompute={mode: times(item) for mode, item in result.best_by_recompute.items()})


@pytest.mark.slow
def test_broken_rules_say_what_must_hold() -> None:
    result = asked(**SHORT)
    rules = [(rule.name, rule.field, rule.text) for rule in result.broken]
    multiple = "must be a multiple of tensor_parallel * context_parallel * pipeline_parallel"
    # The rule that the GPUs are those of all ranks follows from how data_parallel is derived.
    assert {*rules} == {rule for rule in terms_of(result).RULES if rule[0] != "gpus"} | {
        ("data_parallel", "num_gpus", multiple)
    }
    assert len(rules) == len({*rules})


@pytest.mark.slow
def test_the_questions_have_every_kind_of_answer() -> None:
    results = {name: asked(**question) for name, question in QUESTIONS.items()}
    assert all(results["llama"].verdicts.values())
    assert results["llama"].best_by_recompute.keys() == RECOMPUTE_MODES.keys()
    assert 3 < len(results["all that fit"].best) == results["all that fit"].verdicts["fits"]
    assert results["huggingface"].best_by_recompute.keys() == {"none", "full"}
    assert (results["nothing fits"].best, results["nothing fits"].best_by_recompute) == ((), {})
    assert results["nothing fits"].smallest
    assert (results["nothing is legal"].legal, results["nothing is legal"].smallest) == (0, None)


@pytest.mark.slow
def test_of_equal_layouts_the_first_is_the_best() -> None:
    ranks = [ranking(layout) for layout in asked(**QUESTIONS["ties"]).best]
    assert len({*ranks}) < len(ranks)


@pytest.mark.slow
@pytest.mark.parametrize(("shards", "threads"), [(1, 1), (1, 3), (3, 2), (1000, 1)])
def test_chunk_borders_and_threads_change_nothing(
    shards: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [SHORT, QUESTIONS["ties"]]
    whole = [asked(**question) for question in questions]
    monkeypatch.setattr(running, "chunk_of", lambda *_: shards)
    monkeypatch.setattr(running, "_CHUNK", 1)
    monkeypatch.setattr(running.os, "cpu_count", lambda: threads)
    assert [asked(**question) for question in questions] == whole


@pytest.mark.slow
def test_progress_reaches_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    progress: list[tuple[int, int]] = []
    monkeypatch.setattr(running, "chunk_of", lambda *_: 1)
    result = asked(**SHORT, progress=lambda done, tried: progress.append((done, tried)))
    assert result.tried == 320
    assert {tried for _, tried in progress} == {320}
    assert [done for done, _ in progress] == list(range(progress[0][0], 321, progress[0][0]))
    assert len(progress) > 3


@pytest.mark.slow
def test_all_legal_layouts_are_handed_out_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legal, "_MANY", 10)
    handed: list[legal.Columns] = []
    result = asked(**SHORT, on_layouts=handed.append)
    answer, layouts = counted(result, SHORT)
    assert result == answer == asked(**SHORT)
    assert [len(columns["verdict"]) for columns in handed[:-1]] == [10] * (len(handed) - 1)
    assert all(tuple(columns) == legal.NAMES for columns in handed)
    rows = [
        tuple(None if str(value) == "nan" else value for value in row)  # a time that is not known
        for columns in handed for row in zip(*(columns[name].tolist() for name in legal.NAMES), strict=True)
    ]
    assert len(rows) == len(layouts) > 20
    assert sorted(rows) == sorted(tuple(getattr(layout, name) for name in legal.NAMES) for layout in layouts)


@pytest.mark.slow
def test_few_chunks_exist_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[int] = []
    ahead: list[int] = []

    class Counting(ThreadPoolExecutor):
        def submit(self, *arguments: Any) -> Any:
            submitted.append(1)
            return super().submit(*arguments)

    monkeypatch.setattr(running, "chunk_of", lambda *_: 1)
    monkeypatch.setattr(running, "ThreadPoolExecutor", Counting)
    monkeypatch.setattr(running, "_CHUNK", 1)
    monkeypatch.setattr(running.os, "cpu_count", lambda: 3)
    asked(**SHORT, progress=lambda *_: ahead.append(len(submitted) - len(ahead)))
    assert len(submitted) == len(ahead) > 7
    assert max(ahead) == 4


@pytest.mark.slow
@pytest.mark.parametrize("callback", ["progress", "on_layouts"])
def test_an_error_in_a_callback_ends_the_sweep(callback: str) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        asked(**SHORT, **{callback: fail})


@pytest.mark.slow
@given(st.integers(1, 5000))
def test_divisors(number: int) -> None:
    assert list(divisors(number)) == [divisor for divisor in range(1, number + 1) if number % divisor == 0]


@pytest.mark.slow
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
     ({"global_batch_size": 1.5}, "global_batch_size"), ({"implementation": "none"}, "implementation"),
     ({"expert_parallel": [2]}, "expert_parallel"), ({"node_size": 0}, "node_size"), ({"top": 10**6}, "top"),
     ({"expert_tensor_parallel": 2}, "expert_tensor_parallel"), ({"zero_stage": 7}, "zero_stage"),
     ({"kernels": {"rope": "none"}}, "kernel rope")],
    ids=str,
)
def test_what_is_not_legal_is_refused(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(**{**SHORT, **wrong})
    assert caught.value.field == field


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_usual_number_of_chunks_and_experts_may_be_named() -> None:
    assert asked(**SHORT, virtual_pipeline=[1], expert_parallel=[1]) == asked(**SHORT)
