"""The benchmarks run, and everything that they compare gives the same answer; nothing here is timed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    backends,
    beside_calculon,
    machine,
    native,
    nests,
    proofs,
    rates,
    roofline,
    run,
    startup,
    stranger,
)
from benchmarks.contenders import CORES, Contender, Whole, converted, in_blocks, lambdified
from benchmarks.data import Batch, Columns, Job, Outputs, draw, job
from benchmarks.memory import peaks
from benchmarks.rates import DisagreementError, check, contenders, measure
from benchmarks.roofline import Limit, Roofline, Stream
from benchmarks.startup import Figure
from benchmarks.targets import targets
from shardmath.cli.main import exit_code

COUNT = 500


@pytest.fixture(scope="module")
def measured() -> Job:
    return job()


@pytest.fixture(scope="module")
def batches(measured: Job) -> tuple[Batch, Batch]:
    return draw(measured, COUNT)


@pytest.fixture(scope="module")
def rivals(measured: Job) -> list[Contender]:
    if not lambdified.TAKES_COLUMNS:
        with pytest.raises(RuntimeError, match="need SymPy"):
            lambdified.contenders(measured)
        pytest.skip("the benchmarks need SymPy 1.14")
    found, left_out = contenders(measured, 50)
    assert all(line.endswith("is not installed") for line in left_out)
    return found


@pytest.mark.slow
def test_contenders_agree_to_the_byte(rivals: list[Contender], batches: tuple[Batch, Batch]) -> None:
    assert len({rival.key for rival in rivals}) == len(rivals) >= 6
    assert [rival.name for rival in rivals if rival.other] == ["Megatron-LM's published function, plain Python"]
    for batch in batches:
        check(rivals, batch)


@pytest.mark.slow
def test_legal_rows_keep_every_rule(rivals: list[Contender], batches: tuple[Batch, Batch]) -> None:
    legal, mixed = (rivals[0].run(batch.columns)["rule"] for batch in batches)
    assert not legal.any()
    assert 0 < np.count_nonzero(mixed) < COUNT


@pytest.mark.slow
def test_rows_are_drawn_again_with_the_same_seed(measured: Job, batches: tuple[Batch, Batch]) -> None:
    for one, other in zip(batches, draw(measured, COUNT), strict=True):
        assert len(one) == COUNT
        for name, column in one.columns.items():
            assert np.array_equal(column, other.columns[name])
    degrees = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel")
    assert np.all(np.prod([batches[0].columns[name] for name in degrees], axis=0) == 512)


@pytest.mark.slow
def test_one_byte_more_is_found(rivals: list[Contender], batches: tuple[Batch, Batch]) -> None:
    def more(columns: Columns) -> Outputs:
        peak = rivals[0].run(columns)["peak"].astype(np.float64)
        peak[7] += 1
        return {"peak": peak}

    with pytest.raises(DisagreementError, match="another: peak"):
        check([rivals[0], replace(rivals[0], name="another", run=more)], batches[0])


@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_cover_every_row_once(threads: int) -> None:
    seen: list[int] = []
    in_blocks(lambda start, stop: seen.extend(range(start, stop)), 10, 4, threads)
    assert sorted(seen) == list(range(10))


@pytest.mark.slow
def test_rates_are_rows_over_seconds(
    rivals: list[Contender], batches: tuple[Batch, Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(10_000))
    monkeypatch.setattr(rates, "perf_counter", lambda: float(next(ticks)))
    found = measure(rivals, batches[0], 2)
    assert [rate.best for rate in found] == [1.0] * len(rivals)
    assert {rate.rate for rate in found} == {float(COUNT), 50.0}
    assert {tuple(rate.ratios.values()) for rate in found} == {(1.0, 1.0, 1.0), (0.1, 0.1, 0.1)}


@pytest.mark.slow
def test_targets_are_reported_met_or_not(rivals: list[Contender], batches: tuple[Batch, Batch]) -> None:
    slow = [replace(rate, rate=5e6) for rate in measure(rivals, batches[0], 1)]
    ours = Stream("ours", 2, 8e6, 10, 0.5)
    reached = Roofline(4, [], [replace(ours, threads=1), ours, replace(ours, contender="C", rate=4e6)], [])
    figures = [
        Figure("import shardmath", 0.1, 10, 1), Figure("shardmath --help", 0.4, 10, 1),
        *(Figure(f"first use: {name}", 9.0, 10, 1, processor, 9.0) for name, processor in (
            ("explain a", 1.9), ("explain, --kernel rope=unfused", 3.9), ("sweep b", 4.1), ("formula peak", 0.6))),
    ]
    met = {item.name: item.met for item in targets(slow, reached, (), None, figures, {"sympy": True, "numba": False})}
    assert met == {
        "a million legal layouts on all cores, after compilation": False,
        "flat evaluator / C": True,
        "flat evaluator / copy bandwidth": False,
        "flat evaluator / SymPy lambdify, cse=True, columns": False,
        "flat evaluator / SymPy lambdify, cse=True, blocks": False,
        "import shardmath": False,
        "shardmath --help": False,
        "first use: explain a": True,
        "first use: explain, --kernel rope=unfused": True,
        "first use: sweep b": False,
        "first use: formula peak": False,
    }
    light = targets(slow, reached, (), None, figures[:1], {"sympy": False, "numba": False})
    assert {item.name: item.met for item in light}["import shardmath"]


@pytest.mark.slow
def test_what_is_not_installed_is_left_out_with_a_line(measured: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "COMPILER", "no-such-compiler")
    monkeypatch.setattr(rates, "FAMILIES", ("compiled", "in_c", "plain"))
    found, left_out = contenders(measured, 5)
    assert left_out == ["C: no-such-compiler is not installed"]
    compiled = 2 * len({1, CORES})
    assert [rival.family for rival in found] == ["compiled"] * compiled + ["plain"] * 2
    assert {rival.sample for rival in found} == {None, 5}
    reached = roofline.roofline(measured, found, draw(measured, 10)[0], 20, 1)
    assert [stream.contender for stream in reached.streams] == [rival.name for rival in found[:compiled]]
    assert bool(machine.widths()) is bool(reached.left_out)


@pytest.mark.slow
def test_streams_fill_what_runs_return(rivals: list[Contender], batches: tuple[Batch, Batch]) -> None:
    for batch in batches:
        for rival in (rival for rival in rivals if rival.fill is not None):
            outputs = Whole(COUNT)
            for values in outputs.values():
                values.fill(77)
            assert rival.fill is not None
            columns = converted(batch.columns, rival.kind)
            rival.fill(columns, outputs)
            for name, values in rival.run(columns).items():
                assert np.array_equal(outputs[name], values)


@pytest.mark.slow
def test_rates_between_columns_and_outputs(measured: Job, rivals: list[Contender], batches: tuple[Batch, Batch],
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(roofline, "perf_counter", lambda: float(next(ticks)))
    limits = [Limit("copy", threads, rate, "B") for threads in {1, CORES} for rate in (1e6, 5e5)]
    found = roofline.streams(measured, rivals, batches[0], 2000, limits, 2)
    sizes = [width * len(measured.evaluator.kernel.COLUMNS) + 3 * 8 + 2 for width in (8, 2)]
    assert {(stream.rate, stream.size, stream.share) for stream in found} == {
        (2000.0, size, 2000 * size / 1e6) for size in sizes
    }
    assert {limit.rate for limit in roofline.copies(80, 1)} == {160.0}


@pytest.mark.slow
def test_runner_prints_and_writes(
    rivals: list[Contender], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = Figure("shardmath sweep, again", 0.5, 100.0, 1)
    monkeypatch.setattr(run, "contenders", lambda job, sample: (
        [replace(rival, sample=rival.sample and sample) for rival in rivals], []))  # which are compiled already
    monkeypatch.setattr(run, "figures", lambda repeats: [replace(figure, runs=repeats)])
    data, document = tmp_path / "run.json", tmp_path / "benchmarks.md"
    monkeypatch.setattr(run, "peaks", lambda rivals, batch: ({rival.key: 321.0 for rival in rivals}, 12.0))
    monkeypatch.setattr(nests, "LARGE", {name: values[:2] for name, values in nests.LARGE.items()})
    monkeypatch.setattr(nests, "SMALL", {name: values[:2] for name, values in nests.SMALL.items()})
    monkeypatch.setattr(proofs, "LARGE", nests.LARGE)
    monkeypatch.setattr(proofs, "MEASURED", ((proofs.DENSE, "saved tensors", (10**5,)),))
    monkeypatch.setattr(backends, "MEASURED", (("saved tensors", 10**5),))
    tiny = ["--layouts", "40", "--sample", "3", "--repeats", "1", "--nest-repeats", "1", "--startup-repeats", "2"]
    assert run.main([*tiny, "--json", str(data), "--document", str(document)]) == 0
    printed = capsys.readouterr().out
    found = json.loads(data.read_text())
    assert {rate["batch"] for rate in found["rates"]} == set(found["batches"]) == {"legal", "mixed"}
    assert [item["runs"] for item in found["startup"]] == [2]
    assert found["imported"]["sympy"] is False
    assert found["loaded"] == 12.0
    assert found["roofline"]["rows"] == 160
    assert [(cost["proving"], cost["skipping"], cost["usual"]) for cost in found["proofs"]] == [
        (False, False, True), (False, True, False), (True, False, False), (True, True, False),
    ]
    for cost in found["proofs"]:
        assert cost["seconds"] == cost["derived"] + cost["compiled"] + cost["run"]
        assert min(cost["derived"], cost["compiled"], cost["run"]) > 0
    assert [cost["backend"] for cost in found["backends"]] == ["llvm", "numba", "numpy"]
    for cost in found["backends"]:
        assert cost["seconds"] == cost["derived"] + cost["compiled"] + cost["run"]
    assert "as usual" in found["machine"]["compiler"]
    for rate in found["rates"]:
        assert rate["contender"] in printed
        assert rate["memory"] == 321.0
    text = document.read_text()
    assert "@output" not in text
    assert "plain Python" in text


@pytest.mark.slow
def test_commands_are_measured_in_fresh_processes() -> None:
    figure = startup._figure("import", ("-c", "import shardmath"), 1)
    assert figure.seconds > 0
    assert 0 < figure.processor < figure.seconds + 1
    assert 1 < figure.memory < 1000
    with pytest.raises(RuntimeError, match="exit code 3"):
        startup.run_fresh(("-c", "raise SystemExit(3)"))


@pytest.mark.slow
def test_executions_of_calculon_are_read_from_what_it_prints(tmp_path: Path) -> None:
    program = tmp_path / "bin/calculon"
    program.parent.mkdir()
    program.write_text("import sys\nprint('Total executions:', 7 * int(sys.argv[3]))\n")
    tried = beside_calculon.calculon(tmp_path, "gpt3-13B", 6)
    assert (tried.name, tried.count) == ("Calculon, gpt3-13B on 6 GPUs", 42)
    assert tried.seconds > 0
    program.write_text("")
    with pytest.raises(RuntimeError, match="llm-optimal-execution"):
        beside_calculon.calculon(tmp_path, "gpt3-13B", 6)
    assert beside_calculon.Tried("both", 3000, 0.5).line == "both: 3,000 in 0.5 s, 6,000 a second"


@pytest.mark.slow
def test_first_uses_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for name, (arguments, _) in startup.FIRST_USES.items():
        assert exit_code(list(arguments)) == 0, name
    assert "peak" in capsys.readouterr().out


@pytest.mark.slow
def test_memory_is_that_of_a_fresh_process(rivals: list[Contender], batches: tuple[Batch, Batch]) -> None:
    ours = rivals[0]
    found, loaded = peaks([ours], batches[0])
    assert list(found) == [ours.key]
    assert 10 < loaded < found[ours.key] < 1000


def first_steps(load: float) -> stranger.Record:
    first, again = stranger.Seconds(30.0, 20.0), stranger.Seconds(1.5, 1.0)
    times = (stranger.Timed("clone", 1, stranger.Seconds(2.0, 0.5), None),
             stranger.Timed("first answer", 2, first, again))
    about = {name: f"some {name}" for name in ("processor", "memory", "system", "versions", "load")}
    return stranger.Record("2026-11-26", 2, load, about, times)


def test_a_page_of_first_steps_has_the_times_that_it_is_given() -> None:
    page = stranger.document(first_steps(0.1))
    assert "| clone | 1 | 2.0 | 0.5 | - | - |" in page
    assert "| first answer | 2 | 30.0 | 20.0 | 1.5 | 1.0 |" in page
    assert "| **all, the first time** | 3 | 32.0 | 20.5 | | |" in page
    assert "processor  some processor" in page
    assert "2026-11-26" in page
    assert "busy" not in page
    assert "**The machine was busy**: 2.25 processes" in stranger.document(first_steps(2.25))


def test_the_page_of_first_steps_is_that_of_its_record() -> None:
    text = stranger.RECORD.read_text(encoding="utf-8")
    record = stranger.from_json(text)
    assert stranger.to_json(record) == text
    page = stranger.ROOT / "docs" / "first-steps.md"
    assert page.read_text(encoding="utf-8") == stranger.document(record)
    assert [row.name for row in record.times] == ["`git clone`", *(step.name for step in stranger.steps())]
    assert [row.commands for row in record.times[1:]] == [len(step.commands) for step in stranger.steps()]
