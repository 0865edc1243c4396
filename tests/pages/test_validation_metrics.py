"""Errors, verdicts and targets are those of a recount by hand; words that are not true are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import pytest

from shardmath.account.judged import FITS, OUT, UNCERTAIN
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured import details, estimates, metrics, sections, words
from validation.measured.case import FIT, GIB, OUT_OF_MEMORY, PEAK, STEADY, Case, Measured
from validation.measured.estimates import Estimate
from validation.measured.metrics import Summary, at_most, share_within
from validation.measured.plots import predicted_over_measured

MODEL, GPU = Model.named("llama-3.1-8b"), Gpu.named("a100-80gb")
Said = Callable[[Mapping[str, Estimate | str]], None]


def case(name: str, status: str = FIT, measured: tuple[Measured, ...] = (), **more: Any) -> Case:
    group = more.pop("group", "group")
    return Case(name, group, "https://example.org", MODEL, GPU, {}, measured, status=status, **more)


def said_of(peak: int, verdict: str = FITS, published: int | None = None) -> Estimate:
    return Estimate((peak, peak // 2), (peak // 4, peak // 8), ("loss_forward", "layer_backward"), 0.5, verdict,
                    verdict, None if published is None else Fraction(published))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    """Give estimates by the name of the case, instead of those of shardmath."""

    def give(answers: Mapping[str, Estimate | str]) -> None:
        for module in (details, metrics, sections, words):
            monkeypatch.setattr(module, "estimate", lambda item: answers[item.id])

    return give


def test_summary_by_hand() -> None:
    found = Summary.of([-0.5, 0.1, 0.2, -0.1])
    assert (found.count, found.median, found.worst) == (4, pytest.approx(0.15), 0.5)
    assert found.bias == pytest.approx(0.0)
    with pytest.raises(ValueError, match="no errors"):
        Summary.of([])


def test_pairs_take_the_rank_that_was_measured(said: Said) -> None:
    first = case("a", measured=(Measured(PEAK, 100, 1), Measured(STEADY, 20, 0)))
    fullest = case("b", measured=(Measured(PEAK, 100),))
    said({"a": said_of(120, published=130), "b": said_of(80, published=90)})
    found = metrics.pairs([first, fullest], PEAK)
    assert [(pair.predicted, pair.site) for pair in found] == [(60, "layer_backward"), (80, "loss_forward")]
    assert [pair.error for pair in found] == pytest.approx([-0.4, -0.2])
    assert metrics.published_errors(found) == pytest.approx([-0.1])
    (steady,) = metrics.pairs([first, fullest], STEADY)
    assert (steady.predicted, steady.difference) == (30, 10)


def test_runs_without_estimate_are_counted_by_reason(said: Said) -> None:
    said({"a": "no such model", "b": said_of(1), "c": "no such model"})
    cases = [case(name, measured=(Measured(PEAK, 1, 0),)) for name in "abc"]
    assert metrics.not_estimated(cases) == {"no such model": 2}
    assert len(metrics.pairs(cases, PEAK)) == 1
    assert "| 2 | no such model |" in sections.without_estimate(cases)


def test_confusion_by_hand(said: Said) -> None:
    said({"a": said_of(1, FITS), "b": said_of(1, FITS), "c": said_of(1, UNCERTAIN), "d": said_of(1, OUT),
          "e": said_of(1, OUT), "f": "nothing"})
    cases = [case("a"), case("b", OUT_OF_MEMORY), case("c", OUT_OF_MEMORY), case("d", OUT_OF_MEMORY), case("e"),
             case("f")]
    counts = metrics.confusion(cases)
    assert counts == {(FITS, FIT): 1, (FITS, OUT_OF_MEMORY): 1, (UNCERTAIN, OUT_OF_MEMORY): 1,
                      (OUT, OUT_OF_MEMORY): 1, (OUT, FIT): 1}
    assert metrics.right_by_rule(counts) == pytest.approx(3 / 5)
    assert [item.id for item in metrics.contradicted(cases)] == ["b", "e"]
    assert "| fits | 1 | 1 |" in sections.verdicts(cases)


def test_targets() -> None:
    assert at_most("x", [0.001, -0.003], 0.002, 0.005).met
    assert not at_most("x", [0.001, -0.003], 0.002, 0.0025).met
    assert not at_most("x", [0.01, -0.03], 0.002).met
    assert share_within("x", [1, -2, 5, 9], 5, 0.75).met
    assert not share_within("x", [1, -2, 5, 9], 4, 0.75).met
    with pytest.raises(ValueError, match="no differences"):
        share_within("x", [], 1, 1.0)


def test_outliers_that_no_sentence_explains_are_refused(said: Said) -> None:
    from validation.measured.sets import megatron_tests

    named = case("a", measured=(Measured(PEAK, 100, 0),), group=megatron_tests.DENSE,
                 traits=frozenset({megatron_tests.DEFERRED}))
    bare = case("b", measured=(Measured(PEAK, 100, 0),), group=megatron_tests.DENSE)
    said({"a": said_of(60), "b": said_of(101)})
    text, left = words.remarks("megatron_tests", [named, bare])
    assert "1 of 2 dense peaks" in text
    assert left.startswith("The other 1 are")
    said({"a": said_of(60), "b": said_of(200)})
    with pytest.raises(ValueError, match="not true any more"):
        words.remarks("megatron_tests", [named, bare])


def test_a_run_that_trained_but_is_called_out_of_memory_is_refused(said: Said) -> None:
    said({"a": said_of(1, OUT), "b": said_of(1, FITS)})
    with pytest.raises(ValueError, match="nothing that trained"):
        words.remarks("hagemann", [case("a"), case("b")])


def test_group_table_is_a_recount(said: Said) -> None:
    groups = {"a": "x", "b": "x", "c": "y"}
    cases = [case(name, measured=(Measured(PEAK, 100, 0),), group=group) for name, group in groups.items()]
    said({"a": said_of(101, published=150), "b": said_of(97), "c": said_of(90)})
    lines = sections.by_group(cases, PEAK).splitlines()
    assert lines[2] == "| x | 2 | 2.00% | 3.00% | -1.00% | 1 | 50.00% | 50.00% |"
    assert lines[3] == "| y | 1 | 10.00% | 10.00% | -10.00% | 0 |  |  |"
    assert lines[4] == "| all | 3 | 3.00% | 10.00% | -3.00% | 1 | 50.00% | 50.00% |"


@pytest.mark.process
def test_plot_has_a_marker_for_every_number_and_is_the_same_twice(said: Said) -> None:
    pytest.importorskip("matplotlib")
    cases = [case(name, measured=(Measured(PEAK, size * GIB, 0),), group=group)
             for name, size, group in (("a", 1, "x"), ("b", 4, "x"), ("c", 20, "y"))]
    said({name: said_of(5 * GIB) for name in "abc"})
    found = metrics.pairs(cases, PEAK)
    drawn = predicted_over_measured(found)
    assert drawn == predicted_over_measured(found)
    for place, points in enumerate((2, 1)):
        group = drawn[drawn.index(f'id="group-{place}"'):]
        assert group[: group.index("</g>\n   </g>")].count("<use ") == points
    assert "x (2)" in drawn
    with pytest.raises(ValueError, match="nothing to plot"):
        predicted_over_measured([])


def test_farthest_rows_and_what_is_known_of_them(said: Said) -> None:
    traits = {"a": frozenset[str](), "b": frozenset({"late", "odd"}), "c": frozenset[str]()}
    cases = [case(name, measured=(Measured(PEAK, 10 * GIB, 0),), traits=own) for name, own in traits.items()]
    said({"a": said_of(10 * GIB), "b": said_of(5 * GIB), "c": said_of(11 * GIB)})
    lines = details.farthest(metrics.pairs(cases, PEAK), ("odd", "even")).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| b", "| c", "| a"]
    assert lines[0] == "| b | one GPU | 10.000 | 5.000 | -5,120.0 | -50.0% | odd |"


def test_details_of_wrong_and_of_uncertain_runs(said: Said) -> None:
    layout = {"seq_length": 1000, "micro_batch_size": 2}
    cases = [Case(name, "group", "https://example.org", MODEL, GPU, layout, status=OUT_OF_MEMORY) for name in "ab"]
    said({"a": said_of(1, FITS), "b": said_of(1, OUT)})
    _, table = details.details("hagemann", cases)
    assert table.splitlines()[2:] == ["| a | one GPU | group | 2000 | no | 50.0% | loss_forward |"]
    said({"a": said_of(1, FITS), "b": said_of(1, UNCERTAIN)})
    _, table = details.details("known_to_run", [case("a"), case("b")])
    assert table.splitlines()[2:] == ["| b |  | one GPU | 50.0% | loss_forward |"]
    assert details.details("simumax", cases) == []


@pytest.mark.slow
def test_published_estimate_of_an_mlp_without_a_gate() -> None:
    """By hand: fewer parameters in every layer at 18 bytes each, and the same activations."""
    layout = {"global_batch_size": 1, "distributed_optimizer": False}
    plain = Model(**MODEL.model_dump() | {"mlp": "gelu", "name": "plain"})
    gated, without = (estimates.estimate(Case("a", "group", "https://example.org", model, GPU, layout))
                      for model in (MODEL, plain))
    assert isinstance(gated, Estimate)
    assert isinstance(without, Estimate)
    assert gated.published is not None
    assert without.published is not None
    gates = MODEL.num_layers * MODEL.hidden_size * MODEL.ffn_hidden_size
    assert gated.published - without.published == 18 * gates


def test_other_readings_are_estimated_where_the_first_is_refused() -> None:
    item = Case("a", "group", "https://example.org", MODEL, GPU, {}, refusal="no", others={"other": {}})
    assert estimates.estimate(item) == "no"
    assert isinstance(estimates.other_estimate(item, "other"), Estimate)


def test_an_unknown_argument_is_a_reason_and_no_error() -> None:
    item = Case("a", "group", "https://example.org", MODEL, GPU, {"warp_drive": 1})
    said = estimates.estimate(item)
    assert isinstance(said, str)
    assert "warp_drive" in said
    refused = Case("b", "group", "https://example.org", MODEL, GPU, {"tensor_parallel": 3})
    answer = estimates.estimate(refused)
    assert isinstance(answer, str)
    assert "tensor_parallel" in answer


def test_an_estimate_is_that_of_the_account() -> None:
    from shardmath.account.accounting import explain

    layout = {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 2, "global_batch_size": 16}
    account = explain(MODEL, GPU, **layout)
    found = estimates.estimate(Case("a", "group", "https://example.org", MODEL, GPU, layout))
    assert isinstance(found, Estimate)
    assert found.peaks == tuple(rank.total for rank in account.ranks)
    assert (found.verdict, found.rule_80) == (account.verdict, account.rule_80)
    assert found.published == next(item.total for item in account.published if item.name == "megatron_lm")
    roles = ("weight", "gradient", "optimizer", "buffer")
    assert list(found.steady) == [
        sum(rank.by_role[role] for role in roles) + rank.moments["optimizer_step"] for rank in account.ranks]
