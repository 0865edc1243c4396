"""Tables of torchtune, Mist and Galvatron, and the words on rows that are far off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmath.account.accounting import explain
from shardmath.errors import InputError
from shardmath.formats.described import read_settings
from shardmath.formats.table import table
from shardmath.models.model import Model
from validation.measured.case import GIB, PEAK, RESERVED, Case
from validation.measured.estimates import estimate, other_estimate
from validation.measured.metrics import pairs
from validation.measured.reading import rows, whole
from validation.measured.remarks import gaps
from validation.measured.sets import galvatron, mist, torchtune
from validation.measured.sets.swift_examples import words_of

pytestmark = pytest.mark.slow


def test_every_setting_of_torchtune_is_known() -> None:
    for row, case in zip(rows(torchtune.TABLE), torchtune.read(), strict=True):
        assert bool(row["settings"]) != bool(row["missing"])
        if case.model is not None:
            run = read_settings(table("torchtune"), row["id"], words_of(row["settings"]), whole(row["num_gpus"]))
            assert run.unknown == (), row["id"]


def test_units_of_torchtune_are_those_of_its_log() -> None:
    """It divided by 1e9 before August 15, 2024, and by 2^30 since."""
    for row, case in zip(rows(torchtune.TABLE), torchtune.read(), strict=True):
        unit = GIB if row["date"] > "2024-08-15" else 10**9
        assert case.measured[0].bytes == round(float(row["figure"]) * unit)


def _pair_of(cases: tuple[Case, ...], name: str) -> gaps.Pair:
    (pair,) = pairs([case for case in cases if case.id == name], PEAK)
    return pair


@pytest.mark.parametrize("name", ["8b, RTX 4090", "8b, rank 8, 4 bits", "llama-2-7b, once more"])
def test_runs_of_torchtune_with_recompute_are_met(name: str) -> None:
    """With the loss of their recipes and release, and no states where they lie in managed memory."""
    assert abs(_pair_of(torchtune.read(), name).error) < 0.03


def test_a_run_of_torchtune_that_names_no_kernel_had_a_fused_optimizer() -> None:
    """Temporaries of all parameters would not have been in the peak that is stated."""
    pair = _pair_of(torchtune.read(), "3b, recompute")
    fused = gaps.error_of(pair, torchtune.OTHERS["fused"][0])
    assert fused is not None
    assert abs(fused) < 0.03
    assert pair.error > 0.2


def test_every_gap_of_torchtune_has_a_cause_or_something_tried() -> None:
    known = pairs(torchtune.read(), PEAK)
    assert len(known) == 20
    far = sum(abs(pair.error) > gaps.FAR for pair in known)
    assert gaps.of_pairs(known)[0].startswith(f"{far} of 20")


def test_losses_of_torchtune_are_those_of_releases() -> None:
    for row, case in zip(rows(torchtune.TABLE), torchtune.read(), strict=True):
        if case.model is not None:
            loss = case.arguments["kernels"]["loss"]
            assert (loss == "torchtune_shifted") == (row["date"] < "2024-09")
            assert loss.endswith("_compiled") == ("compile=true" in row["settings"] and loss != "torchtune_shifted")
            assert ("chunks" in loss) == ("Chunked" in row["settings"])


def test_stages_of_mist_are_met_and_have_their_own_layers() -> None:
    cases = mist.read()
    known = pairs(cases, PEAK)
    assert len(known) == 20
    assert max(abs(pair.error) for pair in known if mist.HALF_LOSS not in pair.case.causes) < 0.05
    for row, case in zip(rows(mist.TABLE), cases, strict=True):
        layers, place = tuple(map(whole, row["stage_layers"].split())), whole(row["stage"])
        if "first_stage_layers" in case.arguments:  # as many layers as in the list that the source has
            assert case.model is not None
            made = explain(case.model, case.gpu, **case.arguments)
            listed = explain(case.model, case.gpu, pipeline_layout=layers, **{
                name: value for name, value in case.arguments.items()
                if name not in ("first_stage_layers", "last_stage_layers", "recompute_num_layers", "kernels")})
            assert made.ranks[place].by_role["weight"] == listed.ranks[place].by_role["weight"]


def test_reserved_memory_of_mist_is_that_of_the_fullest_stage() -> None:
    known = pairs(mist.read(), RESERVED)
    assert known
    for pair in known:
        said = estimate(pair.case)
        assert not isinstance(said, str)
        assert pair.measured.rank == said.peaks.index(max(said.peaks)) == 0
        assert pair.predicted == said.usual


def test_layers_of_galvatron_are_met() -> None:
    known = pairs(galvatron.read(), PEAK)
    assert len(known) == 10
    assert max(abs(pair.error) for pair in known) < 0.1


def test_a_gap_needs_a_cause_or_something_tried() -> None:
    pair = _pair_of(galvatron.read(), "2 layers, TP 2, DP 4")
    assert abs(pair.error) > gaps.FAR
    assert galvatron.LAYERS in gaps.of_pairs([pair])[1]
    bare = replace(pair, case=replace(pair.case, causes=()))
    with pytest.raises(ValueError, match="neither a cause nor another reading"):
        gaps.of_pairs([bare])
    tried = replace(pair, case=replace(bare.case, others={"the same": pair.case.arguments}))
    assert f"| {pair.error:+.1%} | {gaps.UNKNOWN} | the same: {pair.error:+.1%} |" in gaps.of_pairs([tried])[1]


def test_another_reading_moves_a_number_as_its_formula_does() -> None:
    pair = _pair_of(torchtune.read(), "llama-2-7b, rank 8")
    (name,) = pair.case.others
    said, own = other_estimate(pair.case, name), estimate(pair.case)
    assert not isinstance(said, str)
    assert not isinstance(own, str)
    moved = 1 + pair.error + (said.peaks[0] - own.peaks[0]) / pair.measured.bytes
    replayed = replace(pair, predicted=pair.predicted + GIB)
    error = gaps.error_of(replayed, name)
    assert error == pytest.approx(moved - 1 + GIB / pair.measured.bytes)


@pytest.mark.parametrize("method", ["block", "every"])
def test_recompute_of_a_part_of_listed_stages_is_refused(method: str) -> None:
    """What they hold was taken for that of stages whose layers are all recomputed."""
    options = {"gpu": "h100-80gb", "num_gpus": 4, "pipeline_parallel": 4, "pipeline_layout": (7, 8, 9, 8)}
    implementation = "megatron" if method == "block" else "torchtitan"
    model = Model.named("llama-2-7b")
    with pytest.raises(InputError, match="listed stages"):
        explain(model, implementation=implementation, recompute="full", kernels={"recompute_method": method}, **options)
    plain, named = (explain(model, implementation=implementation, kernels=kernels, **options)
                    for kernels in ({}, {"recompute_method": method}))
    assert [rank.total for rank in plain.ranks] == [rank.total for rank in named.ranks]


def test_two_listed_stages_have_a_time_whichever_layers_would_be_recomputed() -> None:
    """None stands between first and last, which once divided by no layers."""
    found = explain("llama-2-7b", "h100-80gb", num_gpus=2, pipeline_parallel=2, pipeline_layout=(17, 15),
                    kernels={"recompute_method": "block"})
    assert found.time is not None
    assert found.time.seconds > 0
