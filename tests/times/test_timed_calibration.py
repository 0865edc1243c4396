"""Calibration: constants found again in made-up times, within their ranges, judged on groups that were left out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from shardmath.cli.main import cli
from shardmath.commands.calibrate.calibrate import calibrated
from shardmath.commands.calibrate.files import read_runs
from shardmath.commands.calibrate.fitting import (
    CONTENTION,
    CONTENTION_START,
    FITTED,
    FURTHER,
    RANGES,
    STALL,
    STALL_START,
    cross_validated,
    fit,
    usual,
)
from shardmath.commands.calibrate.runs import StepTimes, TimedRun, asked
from shardmath.errors import InputError
from shardmath.generated.definitions import EFFICIENCIES, PARAMETERS
from shardmath.machines import Cluster, read_cluster, write_cluster

pytestmark = pytest.mark.slow

CLUSTER = Cluster.named("h100-80gb", "ndr-400")
WORK, TRAFFIC = np.linspace(1, 9, 40), np.linspace(5, 1, 40) ** 2
START = {"matmul_per_mille": 700, "network_per_mille": 700}
ROW = "llama-3.1-8b,16,2,1,2.5"
HEAD = "model,num_gpus,tensor_parallel,micro_batch_size,step_seconds"


def two_parts(changed: Mapping[str, float]) -> Any:
    """Seconds of runs with work at one rate and traffic at another."""
    rates = {**START, **changed}
    return WORK / rates["matmul_per_mille"] + TRAFFIC / rates["network_per_mille"]


def test_constants_are_found_again() -> None:
    true = {"matmul_per_mille": 460, "network_per_mille": 910}
    found = fit(two_parts, two_parts(true), START).parameters  # type: ignore[arg-type]
    assert found["matmul_per_mille"] == pytest.approx(460, rel=0.02)
    assert found["network_per_mille"] == pytest.approx(910, rel=0.02)


def test_stalled_runs_do_not_bend_the_rest() -> None:
    true = {"matmul_per_mille": 460, "network_per_mille": 910}
    measured = two_parts(true)
    measured[::8] *= 20
    found = fit(two_parts, measured, START).parameters  # type: ignore[arg-type]
    assert found["matmul_per_mille"] == pytest.approx(460, rel=0.06)


def test_no_share_is_above_its_peak() -> None:
    measured = two_parts({"matmul_per_mille": 2000, "network_per_mille": 700})
    found = fit(two_parts, measured, START).parameters  # type: ignore[arg-type]
    assert found["matmul_per_mille"] == 1000
    assert all(high == 1000 for name, (_, high) in RANGES.items() if name.endswith("per_mille"))


def test_what_the_runs_do_not_tell_stays_as_usual() -> None:
    start = {**START, "launch_ns": 15_000}
    found = fit(two_parts, two_parts({"matmul_per_mille": 460}), start).parameters  # type: ignore[arg-type]
    assert found["launch_ns"] == 15_000


def test_a_group_is_predicted_without_its_own_runs() -> None:
    """One group is twice as slow as the others: what they say of it is half of that."""
    measured = two_parts({})
    groups = ["a"] * 10 + ["b"] * 10 + ["c"] * 20
    measured[:10] *= 2
    seconds, fits = cross_validated(two_parts, measured, groups, START)  # type: ignore[arg-type]
    assert set(fits) == {"a", "b", "c"}
    assert np.median(seconds[:10] / measured[:10]) == pytest.approx(0.5, abs=0.02)
    assert fits["b"].parameters != fits["a"].parameters


def test_where_a_fit_starts() -> None:
    run = TimedRun(asked("llama-3.1-8b", CLUSTER.gpu, num_gpus=16), 1.0, "")
    start = usual([run], CLUSTER)
    assert start == {
        **{name: value for name, value in EFFICIENCIES["hopper"].items() if name != "attention_half_length"},
        "launch_ns": 15_000, "network_latency_ns": 14_000,
    }
    assert usual([run], CLUSTER, stall=True)[STALL] == STALL_START


@pytest.mark.parametrize(("sizes", "fitted"), [((8, 16, 32), False), ((16, 16, 32), False), ((16, 32, 64), True)])
def test_contention_is_fitted_to_three_numbers_of_nodes(sizes: tuple[int, ...], fitted: bool) -> None:
    runs = [TimedRun(asked("llama-3.1-8b", CLUSTER.gpu, num_gpus=size), 1.0, "") for size in sizes]
    assert usual(runs, CLUSTER).get(CONTENTION) == (CONTENTION_START if fitted else None)


def test_contention_is_what_one_share_of_the_network_cannot_say() -> None:
    runs = [TimedRun(asked("llama-3.1-8b", CLUSTER.gpu, num_gpus=size, tensor_parallel=degree), 1.0, "")
            for size in (16, 32, 64, 128, 256) for degree in (1, 4, 8)]
    predicted, start = StepTimes(runs, CLUSTER, FITTED), usual(runs, CLUSTER)
    measured = predicted({**start, CONTENTION: 3000})
    fitted = fit(predicted, measured, start)
    alone = fit(predicted, measured, {name: value for name, value in start.items() if name != CONTENTION})
    assert fitted.parameters[CONTENTION] > 2 * CONTENTION_START
    left, without = (np.abs(predicted(item.parameters) / measured - 1).mean() for item in (fitted, alone))
    assert left < without / 2


def test_two_nodes_share_no_link() -> None:
    runs = [TimedRun(asked("llama-3.1-8b", CLUSTER.gpu, num_gpus=size), 1.0, "") for size in (8, 16, 32)]
    predicted = StepTimes(runs, CLUSTER, FITTED)
    apart, shared = predicted({CONTENTION: 0}), predicted({CONTENTION: 3000})
    assert list(apart == shared) == [True, True, False]


def test_a_server_alone_has_no_network_to_fit() -> None:
    alone = CLUSTER.model_copy(update={"network": None})
    run = TimedRun(asked("llama-3.1-8b", CLUSTER.gpu, num_gpus=8), 1.0, "")
    assert not [name for name in usual([run], alone) if name.startswith("network")]
    assert calibrated(alone, {"matmul_per_mille": 600}).parameters == {"matmul_per_mille": 600}


def test_a_run_may_have_a_slower_kernel() -> None:
    run = TimedRun(asked("llama-3.1-8b", CLUSTER.gpu), 1.0, "", {"attention_flops": 10**14})
    values = run.values(CLUSTER)
    assert (values["attention_flops"], values["matmul_flops"]) == (10**14, 989_400 * 10**9)


def test_a_calibrated_cluster_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = calibrated(CLUSTER, {"matmul_per_mille": 612, "network_latency_ns": 9_999})
    values = found.values()
    assert (values["matmul_per_mille"], values["network_latency_ns"]) == (612, 9_999)
    write_cluster(found, str(tmp_path / "own.toml"))
    assert read_cluster(tmp_path / "own.toml") == found


def test_the_documented_constants_are_those_that_are_fitted() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "clusters" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+_(?:per_mille|ns))` \| ([\d,]+) to ([\d,]+) \| (.*) \|$", text, re.MULTILINE)
    assert {name: (low, high) for name, low, high, _ in rows} == {
        name: (f"{low:,}", f"{high:,}") for name, (low, high) in {**RANGES, CONTENTION: FURTHER[CONTENTION]}.items()
    }
    assert all(PARAMETERS[name][-1].startswith(meaning) for name, _, _, meaning in rows)


def test_the_documented_file_is_read(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "clusters" / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```csv\n(.*?)```", text, re.DOTALL)
    runs = read_runs(write(tmp_path, shown), CLUSTER)
    assert [run.seconds for run in runs] == [9.84, 13.07, 5.91]
    assert [run.job.values["data_parallel"] for run in runs] == [8, 4, 4]


def write(folder: Path, *lines: str) -> Path:
    path = folder / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_runs_of_a_file(tmp_path: Path) -> None:
    parameters = "num_gpus,tensor_parallel,sequence_parallel,recompute,global_batch_size"
    head = f"model,{parameters},tokens_per_second_per_gpu,group"
    path = write(tmp_path, head, "llama-3.1-8b,16,2,false,full,64,8000,mine", "llama-3.1-8b,8,,,,64,8192,")
    first, second = read_runs(path, CLUSTER)
    assert first.group == "mine"
    assert first.job.values["sequence_parallel"] == 0
    assert first.job.values["recompute_full"] == 1
    assert first.seconds == pytest.approx(64 * 8192 / 16 / 8000)
    assert second.group == "llama-3.1-8b, 8 GPUs, 8192 tokens"
    assert second.job.values["data_parallel"] == 8
    assert second.seconds == pytest.approx(8)


@pytest.mark.parametrize(("lines", "said"), [
    ((HEAD, ROW), "must have 2 to 10000 runs, has 1"),
    (("model,num_gpu,step_seconds", "a,1,1", "a,1,1"), "column = 'num_gpu': must be a parameter"),
    (("model,num_gpus,num_gpus,step_seconds", "a,1,1,1", "a,1,1,1"), "must not be there twice"),
    (("num_gpus,step_seconds", "1,1", "1,1"), "column model = absent: must be given"),
    (("model,num_gpus", "a,1", "a,1"), "columns step_seconds and tokens_per_second_per_gpu = absent"),
    ((HEAD, ROW, "llama-3.1-8b,16,3,1,2.5"), "line 3.num_gpus = 16: must be a multiple"),
    ((HEAD, ROW, "llama-3.1-8b,16,two,1,2.5"), "line 3.tensor_parallel = 'two': must be an integer"),
    ((HEAD, ROW, "llama-3.1-8b,16,2,1,-1"), "line 3.step_seconds = '-1': must be a number above 0"),
    ((HEAD, ROW, "llama-3.1-8b,16,2,1,"), "line 3.step_seconds or tokens_per_second_per_gpu = absent"),
    ((HEAD, ROW, "llama-3.1-8b,16,2,1"), "line 3.cells = 4: must be as many as columns, 5"),
    ((HEAD, ROW, ",16,2,1,2.5"), "line 3.model = absent: must be given"),
    ((HEAD, ROW, 'llama-3.1-8b,16,"2'), "must be a CSV file"),
])
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_runs(write(tmp_path, *lines), CLUSTER)
    assert said in str(refused.value)


def test_compiled_and_plain_evaluators_agree() -> None:
    runs = [
        TimedRun(asked("llama-3.1-8b", CLUSTER.gpu, num_gpus=gpus, tensor_parallel=t, pipeline_parallel=p,
                       global_batch_size=256, recompute=recompute), 1.0, "")
        for gpus, t, p, recompute in ((16, 2, 1, "none"), (64, 4, 2, "full"), (32, 8, 4, "none"), (8, 1, 1, "full"))
    ]
    changed = {"matmul_per_mille": 612, "network_latency_ns": 20_000}
    for place, seconds in enumerate(StepTimes(runs, CLUSTER, changed)(changed)):
        module = runs[place].job.evaluator.times
        values = {**runs[place].values(CLUSTER), **changed}
        plain = module.terms(**{name: float(values[name]) for name in module.INPUTS})["step.time"]
        assert seconds == pytest.approx(plain, rel=1e-9)


def test_the_command_finds_the_cluster_that_made_the_times(tmp_path: Path) -> None:
    """Times made by the plain evaluators with other constants; the fitted cluster predicts each group unseen.

    Models of two widths, as one of them alone does not tell products from memory: both change with the layout alike.
    """
    true = {"matmul_per_mille": 495, "attention_per_mille": 340, "hbm_per_mille": 458}
    rows = [HEAD + ",global_batch_size"]
    for model, gpus in product(("llama-3.1-8b", "llama-3.2-1b"), (8, 16, 32)):
        for tensor, micro_batch in ((1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (8, 4)):
            job = asked(model, CLUSTER.gpu, num_gpus=gpus, tensor_parallel=tensor,
                        micro_batch_size=micro_batch, global_batch_size=256)
            module, values = job.evaluator.times, {**TimedRun(job, 1, "").values(CLUSTER), **true}
            seconds = module.terms(**{name: float(values[name]) for name in module.INPUTS})["step.time"]
            rows.append(f"{model},{gpus},{tensor},{micro_batch},{seconds:.6f},256")
    output = tmp_path / "own.toml"
    result = CliRunner().invoke(
        cli, ["calibrate", str(write(tmp_path, *rows)), "--gpu", "h100-80gb", "--network", "ndr-400", "-o", str(output),
              "--json"], catch_exceptions=False)
    found = json.loads(result.output)
    assert len(found["groups"]) == 6
    assert found["all"]["before"] > 0.2
    assert all(group["after"] < 0.01 for group in found["groups"])
    assert found["fitted"]["matmul_per_mille"] == pytest.approx(495, rel=0.05)
    assert read_cluster(output).parameters == {
        name: value for name, value in found["fitted"].items() if name != "network_latency_ns"
    }


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD, ROW)
    with pytest.raises(InputError, match="must have 2 to"):
        CliRunner().invoke(cli, ["calibrate", str(path), "--gpu", "h100-80gb", "-o", str(tmp_path / "no.toml")],
                           standalone_mode=False, catch_exceptions=False)
    assert not (tmp_path / "no.toml").exists()
