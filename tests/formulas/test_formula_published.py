"""The command ``formula`` for published terms: the numbers of the source, and the ledger beside them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shardmath.commands.formula.report import show
from shardmath.commands.formula.run import formula
from shardmath.errors import InputError
from shardmath.symbolic.published import all_published


def test_numbers_of_the_source_stand_beside_those_of_its_formula() -> None:
    (number,) = formula("rajbhandari2020.zero1").numbers
    assert number.values == {"Ψ": 7_500_000_000, "D": 64}
    assert (number.printed, number.unit, number.where) == ("31.4", "GB", "figure 1")
    assert number.formula == Fraction(3140625, 100_000)
    assert number.counted is None


def test_the_ledger_has_a_number_where_its_letters_have_values() -> None:
    """7.5 billion parameters take 16 bytes each in the ledger too; 405B has 126 layers of attention besides 6 Ψ."""
    (whole,) = formula("rajbhandari2020.baseline").numbers
    assert whole.formula == whole.counted == 120
    (llama,) = formula("llama3.flops").numbers
    layers, h, u, s, tokens = 126, 16384, 128_256, 8192, 15_600_000_000_000
    counted = tokens * (6 * (405 * 10**9 - h * u - (2 * layers + 1) * h) + 6 * layers * s * 128 * 128)
    assert llama.counted == Fraction(counted, 10**25)


def test_counterparts_say_what_is_compared_and_by_what_the_two_differ() -> None:
    bubble, = formula("narayanan2021.bubble").counterparts
    interleaved, = formula("narayanan2021.bubble_interleaved").counterparts
    assert bubble.counted == "b*D*step.bubble/(B*step.slowest_stage)"
    assert bubble.difference == "b*D*(p*step.slowest_stage - whole.microbatch_time)/(B*step.slowest_stage)"
    assert bubble.implementation == "megatron"
    assert interleaved.implementation == "megatron (schedule interleaved)"
    zero3, fsdp = formula("rajbhandari2020.zero3").counterparts
    assert zero3.implementation == "huggingface (data_parallel deepspeed, precision mixed)"
    assert fsdp.implementation == "torchtitan"
    assert fsdp.assumed["Ψ"] == "stage.parameters"
    assert "rcore" not in fsdp.assumed


def test_a_number_that_the_formula_does_not_give_has_its_reason() -> None:
    (number,) = formula("deepspeed_estimators.zero2_gpu").numbers
    assert number.printed == "15.93"
    assert round(float(number.formula), 2) == 11.28
    assert number.remark == "the documented formula gives it"


def test_an_unknown_term_of_a_set_is_refused_with_those_of_the_set() -> None:
    with pytest.raises(InputError, match=r"must be a term of rajbhandari2020; nearest legal: rajbhandari2020\.zero"):
        formula("rajbhandari2020.zero4")


@pytest.mark.parametrize("name", ["attention.saved", "step.time"])
def test_a_counted_term_has_neither(name: str) -> None:
    shown = formula(name)
    assert (shown.numbers, shown.counterparts) == ((), ())


def test_every_number_and_counterpart_is_shown_once() -> None:
    for item in all_published():
        shown = [formula(term.name) for term in item.own]
        assert sum(len(term.numbers) for term in shown) == len(item.figures)
        assert sum(len(term.counterparts) for term in shown) == len(item.correspondence)


@pytest.mark.parametrize(("term", "names"), [
    ("rajbhandari2020.zero1", ["data_parallel", "total_parameters"]),
    ("fujii2024.layer_activations",
     ["hidden_size", "num_attention_heads", "num_kv_heads", "ffn_hidden_size", "seq_length", "micro_batch_size"]),
])
def test_letters_of_a_formula_have_their_names(term: str, names: list[str]) -> None:
    assert [letter.name for letter in formula(term).letters] == names


@pytest.mark.slow
def test_every_symbol_of_a_published_formula_is_a_letter_or_a_term() -> None:
    for item in all_published():
        for own in item.own:
            shown = formula(own.name)
            letters = {shown.symbol(letter.name) for letter in shown.letters}
            assert shown.expr.free_symbols <= letters | item.terms.by_symbol.keys(), own.name


def test_a_published_term_names_its_publication(capsys: pytest.CaptureFixture[str]) -> None:
    for item in all_published():
        shown = formula(item.own[0].name)
        assert shown.publication is not None
        assert shown.publication.key == item.source
    show(formula("um2024.sending"))
    assert "Heterogeneous GPUs. USENIX ATC 2024.\n" in capsys.readouterr().out
