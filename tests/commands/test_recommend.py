"""What is recommended: the best of all legal layouts, few, different, and changed by what is asked again."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmath import InputError, explain, formats, recommend
from shardmath.account.configured import configured
from shardmath.account.replaying import replayed
from shardmath.cli.main import exit_code
from shardmath.commands.recommend.changes import OVERLAPS
from shardmath.compiler.columns import formula_column
from shardmath.formats.megatron.asserted import refuse_what_does_not_start
from shardmath.input.parameters import UNEVEN as UNEVEN_SIZES
from shardmath.machines import Cluster, write_cluster
from shardmath.models.model import load_model
from shardmath.reports.sizes import in_words
from shardmath.reports.tables import chance
from shardmath.search.choosing import RISKS, SLOWER
from shardmath.search.offered import offered
from shardmath.search.sizes import as_arguments_of_explain, sizes_of
from shardmath.search.timed import timed

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "recommend.md"
JOB: dict[str, Any] = {"gpu": "h100-80gb", "num_gpus": 64, "global_batch_size": 128, "seq_length": 4096}
#: Few enough layouts to evaluate each, with those of experts too.
CORNER: dict[str, Any] = {"virtual_pipeline": (1, 2, 3), "expert_tensor_parallel": (1,), "micro_batch_size": (1, 2),
                          "recompute": ("none", "core_attention", "full")}


@pytest.fixture(scope="module")
def advice() -> Any:
    return recommend("llama-2-13b", **JOB)


@pytest.mark.parametrize("model", ["llama-2-13b", "qwen3-30b-a3b"])
def test_columns_agree_with_the_plain_evaluator(model: str) -> None:
    found = timed(offered(load_model(model), implementation="megatron", **JOB, **CORNER))
    for row in np.random.default_rng(1).integers(len(found), size=50).tolist():
        terms = found.configuration(row).terms
        assert found.columns["seconds"][row] == pytest.approx(terms["step.time"], rel=1e-12)
        assert found.columns["peak"][row] == terms["peak"]


def test_the_80_percent_rule_stands_beside_the_first_choice(capsys: pytest.CaptureFixture[str]) -> None:
    """The fastest of all legal layouts that the rule accepts, if it is faster by more than times err."""
    job: dict[str, Any] = {"gpu": "h100-80gb", "num_gpus": 64, "global_batch_size": 64, "seq_length": 8192,
                           "virtual_pipeline": (1,), "recompute": ("none", "full")}
    for model, is_shown in (("llama-2-70b", True), ("llama-2-7b", False)):
        told = recommend(model, **job)
        first, own = told.choices[0], told.by_rule_80
        found = timed(offered(load_model(model), implementation="megatron", **job))
        accepted = [found.configuration(row) for row in range(len(found))]
        best = min(float(item.terms["step.time"]) for item in accepted if item.rule_80 == "fits")
        assert first.time.error is not None
        assert (own is not None) == (best < (1 - first.time.error) * first.time.seconds) == is_shown
        if own is not None:
            assert own.seconds == pytest.approx(best)
            assert own.rule_80 == "fits"
            assert own.run_out_probability > 0.01
    code = exit_code(["recommend", "llama-2-70b", "--gpu", "h100-80gb", "--gpus", "64", "--gbs", "64", "--vpp", "1",
                      "--recompute", "none,full"])
    assert code == 0
    assert "By the published 80 % rule: " in capsys.readouterr().out


def test_choices_have_the_verdicts_of_their_account(advice: Any) -> None:
    for choice in advice.choices:
        account = choice.explanation
        assert choice.run_out_probability == account.run_out_probability
        assert (choice.verdict, choice.rule_80) == (account.verdict, account.rule_80)
        assert choice.verdict == ("fits" if choice.run_out_probability < 0.01 else "uncertain")
        assert 0 < choice.run_out_probability <= RISKS[-1]


def test_choices_are_replayed_as_explain_does(advice: Any) -> None:
    """Reserved memory of each, by the function behind ``explain``; the answer has the risk of the choices."""
    for choice in advice.choices:
        account = replayed(configured("llama-2-13b", **{name: size for name, size in JOB.items() if name != "gpu"},
                                      gpu=JOB["gpu"], **as_arguments_of_explain(choice.layout)))
        assert account.replay is not None
        assert choice.replay_unknown == account.replay_unknown
        assert choice.reserved_bytes == account.replay.reserved_bytes > choice.peak_bytes
    assert len(advice.choices) > 3
    assert advice.risk == pytest.approx(0.01, rel=1e-4)
    assert "Reserved memory is replayed through a model of PyTorch's allocator." in " ".join(str(advice).split())
    first, *others = advice.choices
    mixed = replace(advice, choices=(*others, replace(first, replay_unknown="stages = 'listed': must be even")))
    known, unknown = ", ".join(str(place + 1) for place in range(len(others))), len(advice.choices)
    said = " ".join(str(mixed).split())
    assert f"Reserved memory of {known} is replayed through a model of PyTorch's allocator." in said
    assert f"Reserved memory of {unknown} is by a formula: steps with stages = 'listed' are not replayed yet." in said
    other = recommend("llama-3.2-1b", "h100-80gb", 8, global_batch_size=8, implementation="huggingface", risk="20%",
                      tensor_parallel=(1,), recompute=("none",))
    assert other.risk == pytest.approx(0.2, rel=1e-4)


def test_choices_are_few_and_differ(advice: Any) -> None:
    assert 3 <= len(advice.choices) <= 5
    assert len({tuple(choice.layout.values()) for choice in advice.choices}) == len(advice.choices)
    first = advice.choices[0]
    assert first.explanation.peak.verdict == "fits"
    for choice in advice.choices[1:]:
        assert choice.time.seconds <= (1 + SLOWER) * first.time.seconds
        if choice.explanation.peak.verdict == "uncertain":
            assert choice.time.seconds < first.time.seconds
        else:
            assert choice.time.seconds >= first.time.seconds
        alike = [abs(own / other - 1) < 0.02 for own, other in (
            (choice.time.seconds, first.time.seconds),
            (choice.explanation.peak.total, first.explanation.peak.total),
        )]
        assert not all(alike)


def test_equally_fast_choices_and_the_error_of_times_are_said(advice: Any) -> None:
    text = " ".join(str(advice).split())
    first = advice.choices[0]
    assert f"nine were within {first.time.error:.1%}" in text
    equal = [place for place, item in enumerate(advice.choices, 1)
             if item.verdict == first.verdict and item.time.seconds <= 1.03 * first.time.seconds]
    said = f"{', '.join(map(str, equal[:-1]))} and {equal[-1]} are equally fast" in text
    assert said == (len(equal) > 1)


@pytest.mark.slow
def test_much_faster_choices_are_not_equally_fast() -> None:
    """Where nothing fits, the first choice is the likeliest to fit of several that may, and the slowest."""
    advice = recommend("gpt-oss-20b", "h100-80gb", 8, global_batch_size=64, seq_length=4096)
    first, second, *_ = advice.choices
    assert first.role == "the fastest that runs out with a probability up to 5%"
    assert (first.verdict, second.verdict) == ("uncertain", "uncertain")
    assert second.time.seconds < 0.9 * first.time.seconds
    assert "equally fast" not in str(advice)


def test_no_other_layout_that_fits_is_faster(advice: Any) -> None:
    found = timed(offered(load_model("llama-2-13b"), implementation="megatron", **JOB))
    assert advice.choices[0].time.seconds == pytest.approx(found.columns["seconds"][found.are("fits")].min())
    assert advice.legal == len(found)


def test_the_next_better_one_is_faster_and_does_not_fit(advice: Any) -> None:
    excluded, first = advice.excluded, advice.choices[0]
    assert excluded.seconds < first.time.seconds
    assert excluded.verdict != "fits"
    assert excluded.run_out_probability >= 0.01


def test_what_is_one_step_away(advice: Any) -> None:
    steps = {(item.name, item.after): item for item in advice.choices[0].neighbours}
    assert not any(name == "expert_parallel" for name, _ in steps)
    for item in steps.values():
        assert item.after in (2 * item.before, item.before // 2)
        assert (item.seconds is None) == (item.peak_bytes is None)
        assert item.excluded or item.seconds is not None
    large = recommend("llama-2-13b", **JOB, tensor_parallel=(8,)).choices[0].neighbours
    beyond = next(item for item in large if (item.name, item.after) == ("tensor_parallel", 16))
    assert "node_size" in beyond.excluded


def test_what_would_change_the_answer_is_asked_again(advice: Any) -> None:
    found = {change.what: change for change in advice.changes}
    first = advice.choices[0]
    slower = found["half the network bandwidth"]
    assert slower.speed < 1 < found["twice the network bandwidth"].speed
    batch = found["twice the batch"]
    other = recommend("llama-2-13b", **{**JOB, "global_batch_size": 256}).choices[0]
    assert batch.seconds == pytest.approx(other.time.seconds)
    assert batch.speed == pytest.approx(2 * first.time.seconds / other.time.seconds)
    assert found["10 % more memory"].speed >= 1 >= found["10 % less memory"].speed


def test_half_the_network_is_that_of_a_cluster_with_half_the_network(advice: Any) -> None:
    cluster = Cluster.named("h100-80gb")
    assert cluster.network is not None
    half = cluster.model_copy(update={
        "network": cluster.network.model_copy(update={"gbit_per_s": cluster.network.gbit_per_s // 2}),
    })
    other = recommend("llama-2-13b", half, 64, global_batch_size=128, seq_length=4096)
    found = next(change for change in advice.changes if change.what == "half the network bandwidth")
    assert dict(other.choices[0].layout) == found.layout
    assert other.choices[0].time.seconds == pytest.approx(found.seconds)


def test_overlaps_that_are_proposed_start_and_take_so_long(advice: Any) -> None:
    """Those that are on already are not; where they are switched off, each is."""
    assert not [change for change in advice.changes if change.what.startswith("overlap_")]
    off = {"overlap_grad_reduce": 0, "overlap_param_gather": 0}
    without = recommend("llama-2-13b", **JOB, **off)
    proposed = {name: change for change in without.changes for name in OVERLAPS if change.what.startswith(f"{name}: ")}
    assert off.keys() <= proposed.keys()
    for name, change in proposed.items():
        switches = {**off, name: 1, **OVERLAPS[name][1]}
        layout = as_arguments_of_explain(change.layout)
        run = explain("llama-2-13b", **{**JOB, **switches, **layout})
        refuse_what_does_not_start(run)
        assert run.time.seconds == pytest.approx(change.seconds)


def test_parts_of_a_step_are_shares_of_it(advice: Any) -> None:
    for choice in advice.choices:
        computing = choice.time.spent["computing"] / choice.time.seconds
        assert computing + sum(choice.binds.values()) == pytest.approx(1)


def test_experts_and_interleaving_are_tried() -> None:
    found = timed(offered(load_model("qwen3-30b-a3b"), implementation="megatron", **JOB, **CORNER))
    assert set(found.columns["expert_parallel"].tolist()) > {1, 8}
    assert set(found.columns["virtual_pipeline"].tolist()) == {1, 2, 3}
    assert "full" in found.columns["recompute"]


#: Models whose layers few numbers of stages divide, with a corner of their layouts.
UNEVEN: dict[str, dict[str, Any]] = {
    "deepseek-v3": {"gpu": "h100-80gb", "num_gpus": 2048, "global_batch_size": 15360, "seq_length": 4096,
                    "tensor_parallel": (1, 2), "expert_parallel": (32, 64), "micro_batch_size": (1,),
                    "expert_tensor_parallel": (1,), "recompute": ("none", "full")},
    "llama-3.1-405b": {"gpu": "h100-80gb", "num_gpus": 4096, "global_batch_size": 1024, "tensor_parallel": (8,)},
}


@pytest.mark.parametrize("model", UNEVEN)
def test_a_shorter_last_stage_is_tried(model: str) -> None:
    """It is what whole chunks on all other ranks leave, and needs what ``explain`` says of it."""
    layers, job = load_model(model).num_layers, UNEVEN[model]
    found = timed(offered(load_model(model), implementation="megatron", **job))
    columns = found.columns
    own = (columns["account_for_embedding"] == 0) & (columns["account_for_loss"] == 0)
    sizes = set(zip(*(columns[name][own].tolist() for name in (
        "pipeline_parallel", "virtual_pipeline", "last_stage_layers")), strict=True))
    for stages, chunks, last in sizes:
        others = next(each for each in range(chunks, 2 * layers, chunks) if stages * each >= layers)
        assert last == (0 if stages * others == layers else layers - (stages - 1) * others)
    assert {stages for stages, _, last in sizes if last} >= {4, 8, 16}
    for stages, chunks, last in sizes:
        alike = own & (columns["pipeline_parallel"] == stages) & (columns["virtual_pipeline"] == chunks)
        layout = as_arguments_of_explain(sizes_of(found.configuration(int(np.flatnonzero(alike)[0]))))
        account = explain(model, "h100-80gb", num_gpus=job["num_gpus"], global_batch_size=job["global_batch_size"],
                          seq_length=job.get("seq_length", 8192), **layout)
        assert last == account.inputs["last_stage_layers"]
        assert account.peak.total == columns["peak"][alike][0]
        assert account.time.seconds == pytest.approx(columns["seconds"][alike][0], rel=1e-9)


#: What is best for each: its sizes of stages, with how a screen and a launch script say them.
STAGES: dict[str, tuple[dict[str, int], str, str]] = {
    "deepseek-v3": ({}, "last stage {last_stage_layers}", "--decoder-last-pipeline-num-layers {last_stage_layers}"),
    "llama-3.1-405b": ({"account_for_embedding": 1, "account_for_loss": 1}, "embedding counts 1, loss counts 1",
                       "--account-for-loss-in-pipeline-split"),
}


@pytest.mark.parametrize("model", UNEVEN)
def test_uneven_stages_are_shown_and_launched(model: str, tmp_path: Path) -> None:
    first = recommend(model, **UNEVEN[model]).choices[0]
    expected, words, option = STAGES[model]
    uneven = {name: first.layout[name] for name in UNEVEN_SIZES if first.layout[name]}
    assert uneven == (expected or {"last_stage_layers": first.layout["last_stage_layers"]})
    assert {name: first.explanation.inputs[name] for name in uneven} == uneven
    assert words.format(**uneven) in in_words(first.layout)
    assert option.format(**uneven) in re.split(r"\s*(?:\\\s*)?\n\s*", first.script())
    assert ("--account-for-embedding-in-pipeline-split" in first.script()) == ("account_for_embedding" in uneven)
    file = tmp_path / "run.sh"
    file.write_text(first.script(), encoding="utf-8")
    assert formats.read(str(file)).explain("h100-80gb").peak.total == first.explanation.peak.total


def test_stages_that_are_asked_for_are_those_that_are_tried() -> None:
    job, deepseek = {**JOB, "implementation": "megatron"}, load_model("deepseek-v3")
    assert not any(space.derived for space in offered(deepseek, **job, kernels={"stages": "even"}))
    asked = timed(offered(deepseek, **job, last_stage_layers=1, recompute=("full",), micro_batch_size=(1,)))
    assert set(asked.columns["pipeline_parallel"].tolist()) == {2, 4, 16}
    assert set(asked.columns["last_stage_layers"].tolist()) == {1}


@pytest.mark.parametrize("implementation", ["torchtitan", "nanotron"])
def test_frameworks_without_a_shorter_last_stage(implementation: str) -> None:
    job = {**JOB, "pipeline_parallel": (4,), "implementation": implementation}
    assert not any(space.derived for space in offered(load_model("llama-3.1-405b"), **job))
    with pytest.raises(InputError, match="pipeline_parallel = 4: must divide num_layers"):
        recommend("llama-3.1-405b", **job)


@given(st.integers(1, 2**53 - 1), st.integers(1, 2**53 - 1), st.integers(1, 2**20))
@example(2**53 - 1, 2**52, 3)
@example(2**53 - 1, 2**53 - 2, 1)
def test_quotients_of_columns_are_exact(numerator: int, large: int, small: int) -> None:
    for denominator in (large, small):
        for whole in (numerator, numerator // denominator * denominator, numerator // denominator * denominator - 1):
            values = {"seq_length": np.asarray([float(whole)]), "hidden_size": np.asarray([float(denominator)])}
            assert formula_column("ceil_div(seq_length, hidden_size)", values)[0] == -(-whole // denominator)
            assert formula_column("floor_div(seq_length, hidden_size)", values)[0] == whole // denominator


def test_where_nothing_fits() -> None:
    found = recommend("llama-3.1-70b", "a100-40gb", 8, global_batch_size=8)
    assert found.choices == ()
    assert found.excluded is not None
    assert found.excluded.peak_bytes > found.cluster.gpu.memory_bytes


def test_json(capsys: pytest.CaptureFixture[str], advice: Any) -> None:
    arguments = [item for name, value in JOB.items() for item in (f"--{name.replace('_', '-')}", str(value))]
    assert exit_code(["recommend", "llama-2-13b", "--json", *arguments]) == 0
    expected = {"schema": "shardmath/recommend/1", **advice.to_dict()}
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(expected))


def test_text(capsys: pytest.CaptureFixture[str], advice: Any) -> None:
    arguments = [item for name, value in JOB.items() for item in (f"--{name.replace('_', '-')}", str(value))]
    assert exit_code(["recommend", "llama-2-13b", *arguments]) == 0
    text = capsys.readouterr().out
    assert f"{advice.choices[0].time.seconds:.2f}" in text
    assert "the fastest that fits" in text
    assert "half the network bandwidth" in text
    rows = text.splitlines()
    (ends,) = (line.index(" out ") + len(" out") for line in rows if " margin " in line and " seconds " in line)
    for place, choice in enumerate(advice.choices, 1):
        (row,) = (row for row in rows if row.startswith(f" {place} ") and f" {choice.verdict} " in row)
        assert row[:ends].split()[-1] == chance(choice.run_out_probability)


def test_a_choice_is_ready_to_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, advice: Any) -> None:
    """Its launch script describes the very layout, and is a model to ask about anew."""
    job = ["--gpu", "h100-80gb", "--num-gpus", "64", "--global-batch-size", "128"]
    second = ["--choice", "2", "--write", "megatron"]
    assert exit_code(["recommend", "llama-2-13b", "--seq-length", "4096", *job, *second]) == 0
    script = capsys.readouterr().out
    assert script == advice.choices[1].script()
    file = tmp_path / "run.sh"
    file.write_text(script, encoding="utf-8")
    account = formats.read(str(file)).explain("h100-80gb")
    assert account.peak.total == advice.choices[1].explanation.peak.total
    assert exit_code(["recommend", str(file), *job, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["choices"][0]["layout"] == advice.choices[0].layout
    assert exit_code(["recommend", "llama-2-13b", *job, "--choice", "9", "--write", "megatron"]) == 2
    assert "choice = 9" in capsys.readouterr().err


@pytest.mark.parametrize(("changes", "field"), [
    ({"gpu": "x100"}, "gpu"), ({"gpu": "v100-32gb"}, "network"), ({"num_gpus": 0}, "num_gpus"),
    ({"tensor_parallel": (3,)}, "tensor_parallel"), ({"global_batch_size": 0}, "global_batch_size"),
    ({"implementation": "megatorn"}, "implementation"),
])
def test_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        recommend("llama-2-13b", **{**JOB, **changes})
    assert refused.value.field == field


def test_a_gpu_without_speeds_says_what_to_give(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--num-gpus", "8", "--global-batch-size", "8"]
    assert exit_code(["recommend", "llama-2-7b", "--gpu-memory", "80", *job]) == 2
    assert "must have speeds, which times need" in capsys.readouterr().err
    path = tmp_path / "cluster.toml"
    write_cluster(Cluster.named("h100-80gb"), str(path))
    assert exit_code(["recommend", "llama-2-7b", "--gpu", str(path), *job]) == 0


def test_the_documented_python_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(DOCUMENT), "exec"), {})
