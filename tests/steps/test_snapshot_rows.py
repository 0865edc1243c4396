"""Snapshots made from a replay: every tensor goes back to its row, and what a run adds or lacks is said."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from made_snapshots import frames_of, made

from shardmath.account.configured import Configuration, configured
from shardmath.allocator.settings import Settings
from shardmath.allocator.trace import Action, Event
from shardmath.cli.main import exit_code
from shardmath.commands.snapshot import Snapshot, snapshot
from shardmath.commands.snapshot.run import prediction
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.models.model import Model
from shardmath.schemas import schema
from shardmath.steps.reserved import replayed_steps

pytestmark = pytest.mark.slow
GIB = 2**30
RUNS: dict[str, dict[str, Any]] = {
    "torchtitan": {"implementation": "torchtitan", "data_parallel": 8, "global_batch_size": 8, "seq_length": 4096},
    "nanotron": {"implementation": "nanotron", "num_gpus": 4, "tensor_parallel": 2, "seq_length": 2048},
}


def events_of(configuration: Configuration) -> list[Event]:
    job = configuration.job
    values = job.on_rank(0)
    return replayed_steps(job.evaluator, values, terms_at(job.evaluator.terms, values), Settings())[0].trace.events


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> tuple[Configuration, list[Event]]:
    configuration = configured("llama-3.2-1b", "h100-80gb", **RUNS[request.param])
    return configuration, events_of(configuration)


def written(path: Path, content: dict[str, Any]) -> Path:
    path.write_bytes(pickle.dumps(content))
    return path


def sums(taken: Snapshot) -> None:
    """Every measured byte belongs to a row or to a stack, and every predicted one to a row."""
    assert taken.predicted is not None
    assert sum(item.predicted_bytes for item in taken.rows) == taken.predicted.allocated_bytes
    assert sum(item.measured_bytes for item in taken.rows) + sum(
        holder.bytes for holder in taken.unexplained) == taken.peak_allocated_bytes
    assert all(item.difference_bytes == item.predicted_bytes - item.measured_bytes for item in taken.rows)


def test_a_run_as_predicted_has_no_difference(run: tuple[Configuration, list[Event]], tmp_path: Path) -> None:
    """Without any word in its stacks: one line of a file for each row."""
    configuration, events = run
    lines = {row: line for line, row in enumerate(dict.fromkeys(event.row for event in events), start=1)}
    content = made(events, lambda event: frames_of("f", lines[event.row]))
    taken = snapshot(written(tmp_path / "a.pickle", content), configuration=configuration)
    sums(taken)
    assert taken.is_whole
    assert not taken.unexplained
    assert not any(item.difference_bytes for item in taken.rows)
    assert all(item.ways == ("size",) for item in taken.rows)
    right = sum(item.predicted_bytes for item in taken.rows if item.stack[0] == f"model.py:{lines[item.row]} f")
    assert right == taken.peak_allocated_bytes, [
        (item.row, item.stack) for item in taken.rows if item.stack[0] != f"model.py:{lines[item.row]} f"]
    assert taken.predicted is not None
    assert taken.replayed == taken.predicted.fullest
    assert taken.replayed is not None
    assert taken.peak_reserved_bytes == taken.replayed.reserved_bytes


def test_what_a_run_adds_and_lacks_is_said(run: tuple[Configuration, list[Event]], tmp_path: Path) -> None:
    """A tensor of 3 GiB that no row has, twice the query, and no keys."""
    configuration, events = run
    extra = [Event(Action.ALLOCATE, -1, 3 * GIB, 0, "reward_model")]
    keys = {event.key for event in events if event.action is Action.ALLOCATE and event.row == "attention.k"}
    kept = [event for event in events if event.key not in keys or event.action is Action.REACH]
    for event in [event for event in kept if event.action is Action.ALLOCATE and event.row == "attention.q"][:4]:
        extra.append(Event(Action.ALLOCATE, -2 - len(extra), event.size, 0, "attention.q"))
    content = made([*extra, *kept], lambda event: frames_of(event.row, 1))
    taken = snapshot(written(tmp_path / "b.pickle", content), configuration=configuration)
    sums(taken)
    rows = {item.row: item for item in taken.rows}
    predicted = Counter[str]()
    for item in prediction(configuration, 0, Settings()).expected:
        predicted[item.row] += item.size
    assert rows["attention.k"].measured_bytes == 0
    assert rows["attention.k"].difference_bytes == predicted["attention.k"]
    assert rows["attention.q"].difference_bytes == -sum(event.size for event in extra[1:])
    assert [(holder.stack[0], holder.bytes) for holder in taken.unexplained] == [("model.py:1 reward_model", 3 * GIB)]


def test_a_history_that_begins_late_has_the_same_peak(run: tuple[Configuration, list[Event]], tmp_path: Path) -> None:
    configuration, events = run
    content = made(events, lambda event: frames_of(event.row, 1))
    whole = snapshot(written(tmp_path / "a.pickle", content), configuration=configuration)
    content["device_traces"][0] = content["device_traces"][0][200:]
    late = snapshot(written(tmp_path / "late.pickle", content), configuration=configuration)
    sums(late)
    assert (whole.is_whole, late.is_whole) == (True, False)
    assert late.peak_allocated_bytes == whole.peak_allocated_bytes
    assert late.peak_reserved_bytes == whole.peak_reserved_bytes
    assert not any(item.difference_bytes for item in late.rows)


def test_padding_and_two_snapshots(tmp_path: Path) -> None:
    """Weights padded by 1 %, and a second snapshot with longer sequences: rows that grew, by so much."""
    configuration = configured("llama-3.2-1b", "h100-80gb", **RUNS["torchtitan"])
    longer = configured("llama-3.2-1b", "h100-80gb", **{**RUNS["torchtitan"], "seq_length": 8192})
    padded = [Event(event.action, event.key, event.size + event.size // 100, event.stream, event.row)
              if event.row == "exp_avg" else event for event in events_of(configuration)]
    paths = [written(tmp_path / f"{place}.pickle", made(events, lambda event: frames_of(event.row, 1)))
             for place, events in enumerate((padded, events_of(longer)))]
    taken = snapshot(paths[0], second=paths[1], configuration=configuration)
    sums(taken)
    rows = {item.row: item for item in taken.rows}
    assert "size within 3 %" in rows["exp_avg"].ways
    assert rows["exp_avg"].difference_bytes == pytest.approx(-rows["exp_avg"].predicted_bytes / 100, rel=0.01)
    assert taken.second is not None
    assert taken.second.peak_allocated_bytes == snapshot(paths[1]).peak_allocated_bytes
    grown = {item.name.partition(" < ")[0]: item for item in taken.second.stacks}
    gate = grown["model.py:1 swiglu.gate"]
    assert gate.after_bytes == 2 * gate.before_bytes == 2 * gate.grown_bytes


def test_the_command_compares_draws_and_anchors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configuration = configured("llama-3.2-1b", "h100-80gb", **RUNS["torchtitan"])
    content = made(events_of(configuration), lambda event: frames_of(event.row, 1))
    path, page, anchor = written(tmp_path / "a.pickle", content), tmp_path / "a.html", tmp_path / "anchor.json"
    words = ["snapshot", str(path), "--run", "llama-3.2-1b", "--gpu", "h100-80gb", "--implementation", "torchtitan",
             "--dp", "8", "--gbs", "8", "--seq", "4096"]
    assert exit_code([*words, "--html", str(page), "--write-anchor", str(anchor)]) == 0
    out = capsys.readouterr().out
    whole = " ".join(out.split())  # lines are as wide as a report
    assert "predicted minus measured +0.000 GiB (+0.0%); 100.0% of what was measured belongs to a row" in whole
    text = page.read_text(encoding="utf-8")
    assert "Content-Security-Policy" in text
    assert "default-src 'none'" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/", "")
    assert text.count("<figure") == 2
    assert exit_code([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, schema("snapshot"))
    measured = json.loads(anchor.read_text())["measured"]
    assert measured == {"allocated_bytes": answer["peak_block_bytes"], "reserved_bytes": answer["peak_reserved_bytes"]}
    assert exit_code(["explain", *words[3:], "--anchor", str(anchor), "--json"]) == 0
    process = json.loads(capsys.readouterr().out)["process"]
    assert process["allocated"] == answer["peak_block_bytes"]
    assert process["reserved"] == pytest.approx(answer["peak_reserved_bytes"], rel=0.001)


def few_words() -> Model:
    """Return a model whose replay has another peak than the ledger."""
    found = Model.named("llama-3.2-1b").model_dump()
    return Model(**{**found, "name": "few words", "vocab_size": 64, "ffn_hidden_size": 64})


def test_what_needs_a_run_and_what_is_not_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.pickle", made([Event(Action.ALLOCATE, 1, 512, 0, "x")], lambda event: []))
    assert exit_code(["snapshot", str(path), "--tp", "2"]) == 2
    assert "--run MODEL" in capsys.readouterr().err
    with pytest.raises(InputError, match="not replayed yet"):
        snapshot(path, configuration=configured("gemma-2-2b", "h100-80gb", num_gpus=8))
    with pytest.raises(InputError, match="a forward pass of layers or of the last norm is the peak"):
        snapshot(path, configuration=configured(few_words(), "h100-80gb", num_gpus=1, implementation="torchtitan",
                                                kernels={"rope": "complex"}))
    with pytest.raises(InputError, match="must be a pipeline rank from 0 to 0"):
        snapshot(path, configuration=configured("llama-3.2-1b", "h100-80gb", implementation="nanotron"), rank=1)


def test_the_example_of_the_page() -> None:
    """A run on an H100: each row of the ledger has its own tensors, and three numbers of the program have none."""
    folder = Path(__file__).resolve().parents[2] / "docs" / "snapshots"
    kernels = {"peak": "megatron_local", "optimizer_kernel": "foreach", "weight_gradient": "separate",
               "rope": "unfused", "value": "view"}
    configuration = configured(Model.from_config(folder / "small.json"), "h100-80gb", num_gpus=1, seq_length=1024,
                               distributed_optimizer=False, kernels=kernels)
    taken = snapshot(folder / "h100.pickle", configuration=configuration)
    sums(taken)
    assert taken.is_whole
    assert not any(item.difference_bytes for item in taken.rows)
    assert {item.ways for item in taken.rows} == {("size",)}
    assert sum(holder.bytes for holder in taken.unexplained) < 2**15
    assert taken.replayed is not None
    assert taken.replayed.reserved_bytes == taken.peak_reserved_bytes
    assert taken.predicted is not None
    assert taken.predicted.fullest is not None
    assert taken.predicted.fullest.reserved_bytes / taken.peak_reserved_bytes == pytest.approx(0.997, abs=0.001)
