"""Claims about terms: read, decided, and those of the catalogue with their verdicts and lines in docs/claims.md."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

import shardmath
from shardmath.commands.prove import Proof
from shardmath.commands.prove.claim import Claim, read_claim, with_settings
from shardmath.commands.prove.listed import ListedClaim, claims
from shardmath.commands.prove.report import show
from shardmath.commands.prove.run import POINTS, prove_listed
from shardmath.compiler.evaluators import find, terms_at
from shardmath.errors import InputError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "claims.md"
NAMES = tuple(claims())
#: Proofs take some seconds each: every tenth and all refuted claims, or all with `ORACLES=full`.
FULL = os.environ.get("ORACLES") == "full" or "UPDATE_DOCUMENTS" in os.environ
TRIED = [name for place, name in enumerate(NAMES) if FULL or place % 10 == 5 or claims()[name].verdict == "refuted"]


@pytest.mark.parametrize(("text", "claim"), [
    ("a.b <= c", Claim("a.b", "<=", "c")),
    ("a with x=1, y = 2 <= b with x = 3", Claim("a with x=1, y = 2", "<=", "b with x = 3")),
    ("a with x=1 = b with x=2", Claim("a with x=1", "=", "b with x=2")),
    ("(a with x=1) - (a with x=2) == 3", Claim("(a with x=1) - (a with x=2)", "=", "3")),
    ("max(a, b)   >\n c", Claim("max(a, b)", ">", "c")),
    ("a rises with s", Claim("a", "<=", "(a) with s = s + more", "s")),
    ("a is decreasing in s", Claim("a", ">=", "(a) with s = s + more", "s")),
])
def test_claims_are_read(text: str, claim: Claim) -> None:
    assert read_claim(text) == claim


@pytest.mark.parametrize("text", ["", "a", "a <= b <= c", "<= b", "a =", "a with x=1"])
def test_what_is_no_claim_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="must be two sides with a relation"):
        read_claim(text)


def test_settings_are_split_from_their_term() -> None:
    assert with_settings("a with x = 1, y = max(1, 2)") == ("a", (("x", "1"), ("y", "max(1, 2)")))
    with pytest.raises(InputError, match="must be NAME = VALUE"):
        with_settings("a with x")


@pytest.mark.parametrize(("claim", "region", "message"), [
    ("layer.savd <= 1", "", "claim.*must be a term or a parameter of megatron"),
    ("layer.saved with tensor=2 <= 1", "", "with.*must be a parameter"),
    ("layer.saved with zero_stage=4 <= 1", "", "zero_stage.*must be an integer from 0 to 3"),
    ("layer.saved with recompute=some <= 1", "", "recompute.*must be none, full, or some of"),
    ("layer.saved with attention=flush <= 1", "", "attention.*must be one of"),
    ("layer.saved with implementation=apex <= 1", "", "implementation.*must be a known implementation"),
    ("layer.saved <= open('x')", "", "claim"),
    ("layer.saved >= 0", "tensor_parallel = 2, tensor_parallel = 3", "region.*must hold for some legal"),
    ("layer.saved >= 0", "sequence_parallel, tensor_parallel = 1", "region.*must hold for some legal"),
    ("layer.saved >= 0", "tensor_paralel = 1", "claim.*must be a term or a parameter"),
])
@pytest.mark.slow
def test_bad_input_is_refused(claim: str, region: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shardmath.prove(claim, region)


@pytest.mark.slow
def test_a_counterexample_is_what_the_evaluator_says() -> None:
    """The integers are legal on both sides, and both evaluators give the values that are printed."""
    proof = shardmath.prove("first.total with gradient_bytes=2 <= first.total with gradient_bytes=4")
    assert proof.verdict == "refuted"
    example = proof.counterexample
    assert example is not None
    evaluator = find("megatron").terms
    totals = []
    for settings in example.settings:
        values: Mapping[str, int] = {**example.values, **settings}
        assert all(evaluator.rules_met(*(values[name] for name in evaluator.INPUTS)))
        totals.append(terms_at(evaluator, values)["first.total"])
    assert [settings["gradient_bytes"] for settings in example.settings] == [2, 4]
    assert totals == [example.left, example.right]
    assert totals[0] > totals[1]


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "region", "verdict"), [
    ("layer.saved > 0", "", "proved"),
    ("layer.saved >= 4*b*s/(c*t)", "sequence_parallel", "proved"),
    ("num_microbatches >= 2", "", "refuted"),
    ("num_microbatches >= 2", "global_batch_size = 2*data_parallel*micro_batch_size", "proved"),
    ("stage_layers * pipeline_parallel = num_layers", "", "proved"),
    ("local.kv_heads >= 1", "tensor_parallel > num_kv_heads", "proved"),
    ("local.kv_heads = 1", "tensor_parallel > num_kv_heads", "proved"),
    ("local.kv_heads = 1", "", "refuted"),
    ("padded_vocab_size >= vocab_size", "", "proved"),
    ("padded_vocab_size < vocab_size + vocab_multiple*tensor_parallel", "", "proved"),
    ("padded_vocab_size <= vocab_size", "", "refuted"),
    ("first.in_flight <= pipeline_parallel", "", "proved"),
    ("first.in_flight = pipeline_parallel", "num_microbatches >= pipeline_parallel", "proved"),
])
def test_small_claims(claim: str, region: str, verdict: str) -> None:
    proof = shardmath.prove(claim, region)
    assert proof.verdict == verdict
    assert (proof.counterexample is None) == (verdict != "refuted")
    assert verdict == "refuted" or proof.points >= POINTS // 2


@pytest.mark.slow
def test_an_open_claim_has_the_bound_that_was_reached(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At h = 2 the sides are 6 and 7, which is where they are nearest; h^2 + 3 - 3h falls before it rises."""
    told: list[str] = []
    monkeypatch.setattr("shardmath.commands.prove.run.working", told.append)
    proof = shardmath.prove("hidden_size^2 + 3 > 3*hidden_size")
    assert (proof.verdict, proof.nearest) == ("open", Fraction(6, 7))
    assert proof.bound == "3/2 * (hidden_size^2 + 3) >= 3*hidden_size"
    show(proof)
    assert "smaller side over larger side at these points: at most 0.857143" in capsys.readouterr().out
    assert told[0] == "looking for a counterexample: 0 points hold"
    assert told[-3:] == ["proving the whole", "proving part 1", "looking for a weaker claim that can be proved"]


@pytest.mark.slow
def test_claims_across_implementations_and_kernels() -> None:
    assert shardmath.prove("layer.parameters with attention=unfused = layer.parameters with attention=flash"
                           ).verdict == "proved"
    assert shardmath.prove("swiglu.parameters with implementation=nanotron = swiglu.parameters").verdict == "proved"
    proof = shardmath.prove("swiglu.saved >= 0", kernels={"swiglu": "eager"})
    assert (proof.verdict, proof.implementation) == ("proved", "megatron, swiglu = eager")


def evidence(proof: Proof) -> str:
    if proof.counterexample is not None:
        values = (proof.counterexample.left, proof.counterexample.right)
        return " against ".join(f"{float(value):,.6g}" if isinstance(value, Fraction) else f"{value:,}"
                                for value in values)
    return {"proved": "proof", "open": f"no counterexample{f'; proved: {proof.bound}' if proof.bound else ''}"}[
        proof.verdict]


def line(item: ListedClaim, shown: str) -> str:
    region = f"`{item.region}`" if 0 < len(item.region) < 100 else "Llama, as in the catalogue" if item.region else ""
    return f"| `{item.name}` | {item.belief} | {region} | {item.verdict} | {shown} | {item.note} |"


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_claims_of_the_catalogue_have_their_verdict(name: str) -> None:
    """With UPDATE_DOCUMENTS=1 in the environment, write the line of docs/claims.md instead of comparing it."""
    proof = prove_listed(name)
    assert proof.verdict == claims()[name].verdict
    expected, text = line(claims()[name], evidence(proof)), PAGE.read_text(encoding="utf-8")
    if os.environ.get("UPDATE_DOCUMENTS"):
        text = re.sub(rf"(?m)^\| `{name}` \|.*$", lambda _: expected, text)
        PAGE.write_text(text, encoding="utf-8")
    assert expected in text.splitlines()


def test_the_catalogue_is_on_the_page_in_order() -> None:
    rows = re.findall(r"(?m)^\| `([\w-]+)` \|", PAGE.read_text(encoding="utf-8"))
    assert tuple(rows) == NAMES
    assert len(NAMES) >= 25
    assert {item.verdict for item in claims().values()} == {"proved", "refuted"}


def test_unknown_claims_are_refused() -> None:
    with pytest.raises(InputError, match="must be a claim of the catalogue"):
        prove_listed("zero1-never-more-than-dpd")


@pytest.mark.slow
def test_the_name_of_a_claim_is_a_claim() -> None:
    name = "sequence-parallel-gain"
    assert shardmath.prove(name) == prove_listed(name)
    with pytest.raises(InputError, match=f"claim = '{name}': must be given alone"):
        shardmath.prove(name, region="num_layers = 2")
