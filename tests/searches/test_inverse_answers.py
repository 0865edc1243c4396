"""Answers of ``fit``: each is the last value with which ``explain`` says that a configuration fits."""

import json
from fractions import Fraction
from typing import Any

import pytest
from sympy import Symbol, floor

from shardmath.account.accounting import explain
from shardmath.cli.main import exit_code
from shardmath.commands.fit import FitAnswer, fit
from shardmath.commands.fit.symbols import LARGEST, SMALLEST, USUAL
from shardmath.errors import InputError
from shardmath.machines.gpu import Gpu
from shardmath.models.model import load_model
from shardmath.symbolic.documents.inverted import solved

CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "megatron": ("llama-3.1-8b", {"tensor_parallel": 4, "pipeline_parallel": 4, "num_gpus": 64}),
    "batch": ("llama-3.1-8b", {"tensor_parallel": 2, "pipeline_parallel": 4, "num_gpus": 64,
                               "global_batch_size": 768}),
    "torchtitan": ("llama-3.1-8b", {"implementation": "torchtitan", "num_gpus": 64, "recompute": "full"}),
    "huggingface": ("qwen2.5-0.5b", {"implementation": "huggingface", "seq_length": 2048}),
    "experts": ("qwen3-30b-a3b", {"num_gpus": 32, "seq_length": 4096}),
    "expert_parallel": ("qwen3-30b-a3b", {"num_gpus": 64, "expert_parallel": 8, "recompute": "full"}),
    "nanotron": ("llama-3.2-1b", {"implementation": "nanotron", "tensor_parallel": 2, "num_gpus": 16}),
}
#: What goes along is an argument of ``explain`` for these, and part of the model for the others.
_ARGUMENTS = ("micro_batch_size", "seq_length")


def account(name: str, answer: FitAnswer, value: int) -> tuple[int, int, str, bool]:
    """Peak, rank, moment and if it fits, by ``explain``, of a configuration with another value of the symbol."""
    model, arguments = CONFIGURATIONS[name]
    if answer.symbol in _ARGUMENTS:
        found = explain(model, "h100-80gb", **{**arguments, answer.symbol: value})
    elif answer.symbol == "num_gpus":
        found = explain(model, "h100-80gb", **{**arguments, "num_gpus": value})
    else:
        assert answer.at is not None
        assert answer.beyond is not None
        along = (answer.at if answer.at.value == value else answer.beyond).values
        found = explain(load_model(model).model_copy(update=dict(along)), "h100-80gb", **arguments)
    return found.peak.total, found.peak.rank, found.peak.site, found.verdict == "fits"


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_explain_says_the_same_at_the_answer_and_beyond(name: str) -> None:
    model, arguments = CONFIGURATIONS[name]
    found = fit(model, "h100-80gb", **arguments)
    seen = 0
    for answer in found.answers:
        if answer.method != "closed form" or answer.symbol == "gpu_memory":
            continue
        for bound, fits in ((answer.at, True), (answer.beyond, False)):
            if bound is not None:
                assert account(name, answer, bound.value) == (bound.peak, bound.rank, bound.moment, fits), answer
                seen += 1
    assert seen >= 7


@pytest.mark.slow
def test_what_no_number_of_gpus_mends_is_shown_as_it_was_asked() -> None:
    model, arguments = CONFIGURATIONS["experts"]
    answer = fit(model, "h100-80gb", "num_gpus", **arguments)["num_gpus"]
    assert answer.at is None
    assert answer.beyond is not None
    assert (answer.beyond.value, answer.beyond.peak) == (32, explain(model, "h100-80gb", **arguments).peak.total)


def test_the_limit_is_that_of_the_verdict() -> None:
    model, arguments = CONFIGURATIONS["megatron"]
    for risk in ("1%", "20%"):
        account = explain(model, "h100-80gb", risk=risk, **arguments)
        found = fit(model, "h100-80gb", "gpu_memory", risk=risk, **arguments)
        assert (found.limit, found.share, found.risk) == (account.peak.limit, None, account.risk)


def test_the_memory_that_is_needed_is_just_enough() -> None:
    model, arguments = CONFIGURATIONS["megatron"]
    needed = fit(model, "h100-80gb", "gpu_memory", **arguments)["gpu_memory"].at
    assert needed is not None
    enough, little = (explain(model, Gpu(**{**Gpu.named("h100-80gb").model_dump(), "memory_bytes": size}), **arguments)
                      for size in (needed.value, needed.value - 1))
    assert (enough.verdict, little.verdict) == ("fits", "uncertain")
    assert needed.peak == explain(model, "h100-80gb", **arguments).peak.total


@pytest.mark.slow
def test_the_smallest_degrees_are_those_of_trying_all() -> None:
    model, arguments = "llama-3.1-70b", {"num_gpus": 64, "global_batch_size": 1024}
    found = fit(model, "h100-80gb", "model_parallel", **arguments)
    fitting = []
    for t in (1, 2, 4, 8):
        for p in (1, 2, 4, 5, 8, 10, 16, 20, 40, 80):
            try:
                told = explain(model, "h100-80gb", tensor_parallel=t, pipeline_parallel=p, **arguments)
            except InputError:
                continue
            if told.verdict == "fits":
                fitting.append((t * p, told.peak.total, t, p))
    at = found["model_parallel"].at
    assert at is not None
    assert (at.value, at.peak, at.values["tensor_parallel"], at.values["pipeline_parallel"]) == min(fitting)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("symbol", ["micro_batch_size", "seq_length", "num_layers", "hidden_size", "num_gpus"])
def test_the_formula_gives_the_peak_and_the_closed_answer(name: str, symbol: str) -> None:
    model, arguments = CONFIGURATIONS[name]
    found = fit(model, "h100-80gb", symbol, keep="heads", **arguments)
    answer = found[symbol]
    bound = answer.at or answer.beyond
    assert bound is not None
    if answer.formula is None:  # without a sharded state nothing depends on the number of GPUs
        assert symbol == "num_gpus"
        assert name in ("huggingface", "nanotron")
        return
    at = next(iter(bound.values.values()))
    counts = {one.power: one.bytes for one in answer.formula.coefficients.values()}
    polynomial = sum(count * Fraction(at) ** power for power, count in counts.items())
    assert polynomial + answer.formula.roundings == bound.peak
    letters = {power: Symbol(f"c{power + 1}") for power in counts}
    formula = solved(letters, Symbol("limit"), largest=answer.largest)
    numbers = {letters[power]: count for power, count in counts.items()} | {Symbol("limit"): answer.formula.limit}
    over, under = (part.subs(numbers) for part in formula.args)
    closed = floor(over / under) if answer.largest else -floor(-over / under)
    if answer.formula.closed is not None:
        assert closed == answer.formula.closed
        assert answer.at is None or abs(answer.formula.roundings) > 0 or (
            at <= closed if answer.largest else at >= closed)
    assert answer.formula.text.split(" = ")[0] == {
        "micro_batch_size": "b", "seq_length": "s", "num_layers": "L", "hidden_size": "h", "num_gpus": "D"}[symbol]


def test_a_larger_share_never_gives_less() -> None:
    model, arguments = CONFIGURATIONS["batch"]
    usual, all_of_it = fit(model, "h100-80gb", **arguments), fit(model, "h100-80gb", share="1.0", **arguments)
    for answer in usual.answers:
        if answer.at is not None and answer.symbol != "gpu_memory":
            other = all_of_it[answer.symbol].at
            assert other is not None
            assert other.value >= answer.at.value if answer.largest else other.value <= answer.at.value


@pytest.mark.parametrize(("arguments", "said"), [
    (["--solve", "layers"], "solve = 'layers': must be a symbol that can be solved for; nearest legal: num_layers"),
    (["--solve", "num_experts"], "solve = 'num_experts': must be a symbol of the formulas"),
    (["--share", "80"], "share = '80': must be above 0 and at most 1"),
    (["--keep", "head"], "keep = 'head': must be one of head_dim, heads, all"),
    (["--pipeline-layout", "16,16", "--pp", "2"], "pipeline_layout = '16,16': must not be given"),
    (["-o", "x.parquet"], "output = 'x.parquet': must not be given without --table"),
    (["--table", "x.csv"], "output = absent: must be given with --table"),
    (["--table", "x.csv", "-o", "y.parquet"], "solve = absent: must be given with --table"),
    (["--table", "x.csv", "-o", "y.parquet", "--solve", "hidden_size"], "solve = 'hidden_size': must be a symbol that"),
])
def test_bad_input_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["fit", "llama-3.1-8b", "--gpu", "h100-80gb", *arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: {said}")
    assert shown.count("\n") == 1


@pytest.mark.slow
def test_the_command_prints_answers_and_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    start = ["fit", "llama-3.1-8b", "--gpu", "h100-80gb", "--tp", "4", "--pp", "4", "--num-gpus", "64"]
    assert exit_code(start) == 0
    table = capsys.readouterr().out
    assert all(symbol in table for symbol in USUAL)
    assert exit_code([*start, "--solve", "micro_batch_size"]) == 0
    text = capsys.readouterr().out
    assert "b = ⌊(process.most - fixed)/slope⌋ = 4" in text
    assert exit_code([*start, "--solve", "micro_batch_size", "--share", "0.8"]) == 0
    assert "b = ⌊(4*M/5 - fixed)/slope⌋ = 6" in capsys.readouterr().out
    assert "layer backward" in text
    assert exit_code([*start, "--solve", "seq_length", "--latex"]) == 0
    assert r"s = \left\lfloor" in capsys.readouterr().out
    assert exit_code([*start, "--solve", "seq_length", "--unicode"]) == 0
    assert "⎣       slope        ⎦" in capsys.readouterr().out
    assert exit_code([*start, "--solve", "seq_length", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (answer,) = found["answers"]
    assert found["share"] is None
    assert answer["at"]["peak"] <= float(Fraction(found["limit"])) < answer["beyond"]["peak"]
    assert answer["formula"]["coefficients"]["slope"]["bytes"] > 0


def test_every_symbol_is_named_once() -> None:
    assert len({*LARGEST, *SMALLEST}) == len(LARGEST) + len(SMALLEST)
    assert {*USUAL} <= {*LARGEST, *SMALLEST}
