"""Switches that hide traffic beside work: on by default where an expert sets them, the same in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmath import explain, recommend, scale, sweep
from shardmath.cli.main import exit_code
from shardmath.compiler.evaluators import find
from shardmath.configuration.defaults import OVERLAPS, impossible_overlaps
from shardmath.errors import InputError
from shardmath.formats import read, written
from shardmath.search.sizes import as_arguments_of_explain

GRADIENTS, WEIGHTS, PRODUCTS = OVERLAPS
JOB: dict[str, Any] = {"num_gpus": 16, "global_batch_size": 64, "seq_length": 2048}
SCRIPT = Path(__file__).parents[1] / "data" / "formats" / "megatron_llama3_8b_fp8.sh"


def switches(**changes: Any) -> dict[str, int]:
    machine = explain("llama-3.2-1b", "h100-80gb", **{**JOB, **changes}).switches
    return {name: machine[name] for name in OVERLAPS}


def test_an_expert_overlaps_gradients_and_weights() -> None:
    assert switches() == {GRADIENTS: 1, WEIGHTS: 1, PRODUCTS: 0}


@pytest.mark.parametrize(("changes", "expected"), [
    ({"distributed_optimizer": False}, (1, 0)),  # nothing is gathered
    ({GRADIENTS: 0}, (0, 0)),  # the buckets are the same
    ({WEIGHTS: 0}, (1, 0)),
    ({GRADIENTS: 0, WEIGHTS: 1}, (0, 1)),  # as asked; Megatron-LM does not start
])
def test_a_default_gives_way(changes: dict[str, Any], expected: tuple[int, int]) -> None:
    overlaps = switches(**changes)
    assert (overlaps[GRADIENTS], overlaps[WEIGHTS]) == expected


def test_a_single_bucket_overlaps_nothing() -> None:
    usual, values = {GRADIENTS: 1, WEIGHTS: 1}, {"single_bucket": 1, "distributed_optimizer": 1}
    assert impossible_overlaps(find("megatron"), usual, (), values) == {GRADIENTS: 0, WEIGHTS: 0}
    assert impossible_overlaps(find("megatron"), usual, (GRADIENTS, WEIGHTS), values) == {}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["muon", "dist_muon"])
def test_muon_starts_without_overlap(optimizer: str) -> None:
    asked = {"kernels": {"optimizer": optimizer}, "distributed_optimizer": False}
    assert switches(**asked) == dict.fromkeys(OVERLAPS, 0)
    account = explain("llama-3.2-1b", "h100-80gb", **JOB, **asked)
    assert "overlap" not in written("megatron", account)


def test_hidden_traffic_costs_less_time_and_no_byte() -> None:
    on, off = (explain("llama-3.1-8b", "h100-80gb", **JOB, **changed) for changed in ({}, {GRADIENTS: 0}))
    assert on.ranks == off.ranks
    assert on.time is not None
    assert off.time is not None
    assert on.time.spent["data"] < off.time.spent["data"]
    assert on.time.seconds < off.time.seconds


def test_without_gradients_ahead_no_weights_are() -> None:
    """A search has no rule for it: the formula counts such weights as gathered before the pass."""
    neither, weights = (explain("llama-3.1-8b", "h100-80gb", **JOB, **{GRADIENTS: 0, WEIGHTS: on}).time
                        for on in (0, 1))
    assert neither is not None
    assert weights is not None
    assert neither.seconds == weights.seconds


@pytest.mark.parametrize("shared", [False, True])
def test_nanotron_overlaps_nothing_where_it_shares_out_states(shared: bool) -> None:
    """With ZeRO-1 it has no buckets: it sums all gradients at the end, whatever is asked for."""
    job = {**JOB, "implementation": "nanotron", "distributed_optimizer": shared}
    usual, off, on = (explain("llama-3.2-1b", "h100-80gb", **job, **asked)
                      for asked in ({}, {GRADIENTS: 0}, {GRADIENTS: 1}))
    assert usual.switches[GRADIENTS] == int(not shared)
    assert usual.time is not None
    assert off.time is not None
    assert on.time is not None
    assert usual.time.seconds == on.time.seconds
    assert (off.time.seconds == on.time.seconds) is shared


@pytest.mark.slow
def test_every_command_counts_a_layout_with_the_same_switches() -> None:
    model, gpu, batch = "llama-3.1-8b", "h100-80gb", {"global_batch_size": 64, "seq_length": 8192}
    first = recommend(model, gpu, 16, **batch).choices[0]
    alone = explain(model, gpu, num_gpus=16, **batch, **as_arguments_of_explain(first.layout))
    point = scale(model, gpu, (16,), **batch).points[0]
    best = sweep(model, gpu, 16, **batch).best[0]
    assert alone.time is not None
    assert point.time is not None
    assert alone.time.seconds == pytest.approx(first.time.seconds)
    assert point.time.seconds == pytest.approx(first.time.seconds)
    assert best.step_seconds == pytest.approx(first.time.seconds)
    assert {alone.peak.total, point.peak_bytes, best.peak_bytes} == {first.explanation.peak.total}
    assert {**alone.time.machine, **point.time.machine}[GRADIENTS] == first.time.machine[GRADIENTS] == 1
    script = first.script()
    assert "--overlap-grad-reduce" in script
    assert "--overlap-param-gather" in script


def test_a_launch_file_overlaps_what_it_says(tmp_path: Path) -> None:
    said = read(SCRIPT)
    assert (said.arguments[GRADIENTS], said.arguments[WEIGHTS]) == (1, 1)
    silent = tmp_path / "run.sh"
    lines = SCRIPT.read_text(encoding="utf-8").splitlines(keepends=True)
    silent.write_text("".join(line for line in lines if "--overlap" not in line), encoding="utf-8")
    assert (read(silent).arguments[GRADIENTS], read(silent).arguments[WEIGHTS]) == (0, 0)


@pytest.mark.slow
def test_a_search_for_the_model_of_a_file_takes_none_of_its_missing_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "run.sh"
    plain = explain("llama-3.2-1b", "h100-80gb", **JOB, **{GRADIENTS: 0, WEIGHTS: 0})
    file.write_text(written("megatron", plain), encoding="utf-8")
    job = ["--gpu", "h100-80gb", "--num-gpus", "16", "--global-batch-size", "64"]
    assert exit_code(["sweep", str(file), *job]) == 0
    assert "(off: --no-overlap-grad-reduce, --no-overlap-param-gather)" in " ".join(capsys.readouterr().out.split())
    assert exit_code(["explain", str(file), "--gpu", "h100-80gb"]) == 0
    assert "Counted with" not in capsys.readouterr().out


@pytest.mark.slow
def test_an_overlap_that_was_asked_for_is_not_dropped_in_silence() -> None:
    account = explain("llama-3.2-1b", "h100-80gb", **JOB, **{WEIGHTS: 1}, distributed_optimizer=False)
    with pytest.raises(InputError, match="overlap_param_gather = 1: must be given with distributed_optimizer"):
        written("megatron", account)


@pytest.mark.slow
def test_weights_of_a_third_tensor_axis_are_gathered_ahead_without_sharded_states() -> None:
    overlaps = switches(kernels={"tensor_axes": "three"}, tensor_parallel_z=2)
    assert (overlaps[GRADIENTS], overlaps[WEIGHTS]) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2])
def test_deepspeed_fills_a_second_bucket(stage: int, tmp_path: Path) -> None:
    job: dict[str, Any] = {"implementation": "huggingface", "zero_stage": stage, "num_gpus": 8, "seq_length": 2048}
    on, off = (explain("llama-3.2-1b", "h100-80gb", **job, **changed) for changed in ({}, {"overlap_comm": 0}))
    bucket = on.inputs["reduce_bucket_size"] * 2
    assert on.inputs["overlap_comm"] == 1
    assert 0 <= on.peak.total - off.peak.total <= bucket
    for account in (on, off):
        assert f'"overlap_comm": {str(bool(account.inputs["overlap_comm"])).lower()}' in written("deepspeed", account)
