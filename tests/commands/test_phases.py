"""Trainings in phases: totals, changes, layouts that stay, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from shardmath import InputError, explain, phases
from shardmath.cli.main import exit_code
from shardmath.schemas.documents import schema
from shardmath.symbolic.write import GENERATED


def plan(*layouts: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"model": "llama-3.2-1b", "gpu": "h100-80gb", "num_gpus": 8, "phases": [
        {"tokens": 10**9, "seq_length": 4096, "global_batch_size": 16, "layout": layout} for layout in layouts
    ], **options}


def test_a_phase_takes_its_tokens_over_the_tokens_of_a_second() -> None:
    answer = phases(plan({"tensor_parallel": 2}))
    account = explain("llama-3.2-1b", "h100-80gb", num_gpus=8, tensor_parallel=2, seq_length=4096, global_batch_size=16)
    assert account.time is not None
    (phase,) = answer.phases
    assert phase.seconds == pytest.approx(10**9 / account.time.tokens_per_second)
    assert phase.gpu_hours == pytest.approx(8 * phase.seconds / 3600)
    assert (phase.peak_bytes, phase.verdict) == (account.peak_bytes, account.verdict)
    assert (answer.changes, answer.kept, answer.seconds) == ((), (), phase.seconds)


def test_a_change_is_added_and_each_layout_is_tried_in_all_phases() -> None:
    storage = {"write_bandwidth": 10**10, "read_bandwidth": 2 * 10**10}
    answer = phases(plan({"tensor_parallel": 2}, {"pipeline_parallel": 2}, storage=storage))
    (change,) = answer.changes
    parameters = explain("llama-3.2-1b", "h100-80gb", num_gpus=8).parameters.total
    assert change.written_bytes == 14 * parameters
    assert change.checkpoint_seconds == pytest.approx(change.written_bytes / 10**10 + change.read_bytes / 2 / 10**10)
    assert 0 < change.most_bytes <= change.weight_bytes + change.state_bytes
    assert answer.seconds == pytest.approx(sum(phase.seconds for phase in answer.phases) + change.checkpoint_seconds)
    first, second = answer.phases
    assert [kept.seconds for kept in answer.kept] == pytest.approx([2 * first.seconds, 2 * second.seconds])
    assert answer.faster is min(answer.kept, key=lambda kept: kept.seconds or 0)


def test_the_read_bytes_are_what_the_new_layout_keeps() -> None:
    answer = phases(plan({"tensor_parallel": 2}, {"tensor_parallel": 4}))
    account = explain("llama-3.2-1b", "h100-80gb", num_gpus=8, tensor_parallel=4, seq_length=4096, global_batch_size=16)
    weights = account.ranks[0].by_role["weight"]
    states = account.ranks[0].by_role["optimizer"]
    padding = 256 * 2048 * (2 * 2 + 12)  # rows of the vocabulary that nobody reads: weights twice, states once
    assert 8 * (weights + states) - answer.changes[0].read_bytes == padding
    assert answer.changes[0].checkpoint_seconds is None
    assert answer.changes[0].seconds == answer.changes[0].network_seconds > 0


def test_the_table_of_the_supplement_has_what_the_command_counts() -> None:
    """Both layouts of every row without virtual stages, in elements: a weight has 2 bytes, its states have 12."""
    section = (GENERATED / "supplement.tex").read_text(encoding="utf-8").partition(r"\subsection{Phases")[2]
    degree = {"TP": "tensor_parallel", "CP": "context_parallel", "PP": "pipeline_parallel", "DP": "data_parallel"}

    def said(text: str) -> dict[str, Any]:
        return {degree[word]: int(size) for word, size in re.findall(r"(\w+)~(\d+)", text)}

    old = said(re.findall(r"From ([^\n]*), in elements", section)[0])
    rows = re.findall(r"^(TP~.*) & (.*) & (.*) & (.*) \\\\$", section.partition("The plan of a training")[0], re.M)
    assert len(rows) == 3
    for layout, *cells in rows:
        weights, states, most = (int(cell.replace(r"\,", "")) for cell in cells)
        part = {"tokens": 10**9, "seq_length": 8192, "global_batch_size": 128}
        (change,) = phases({"model": "llama-3.1-8b", "gpu": "h100-80gb", "num_gpus": 64, "phases": [
            {**part, "layout": {name: size for name, size in chosen.items() if name != "data_parallel"}}
            for chosen in (old, said(layout))
        ]}).changes
        assert (change.weight_bytes, change.state_bytes) == (2 * weights, 12 * states)
        assert 2 * most <= change.most_bytes <= 12 * most


def test_context_parallelism_in_place_of_data_parallelism_moves_nothing() -> None:
    (change,) = phases(plan({"tensor_parallel": 2}, {"tensor_parallel": 2, "context_parallel": 4})).changes
    assert (change.most_bytes, change.weight_bytes, change.state_bytes, change.seconds) == (0, 0, 0, 0)


def test_a_layout_that_differs_in_recompute_alone_does_not_change() -> None:
    assert phases(plan({}, {"recompute": "full", "micro_batch_size": 2})).changes == ()


@pytest.mark.parametrize(("changes", "field", "nearest"), [
    ({"model": "llama-3.2-1x"}, "model", "llama-3.2-1b"),
    ({"num_gpu": 8}, "num_gpu", "num_gpus"),
    ({"storage": {"write_bandwidth": 1}}, "storage.read_bandwidth", None),
    ({"storage": {"write_bandwidth": 0, "read_bandwidth": 1}}, "storage.write_bandwidth", "1"),
    ({"phases": []}, "phases", None), ({"risk": "60%"}, "risk", "50%"), ({"risk": True}, "risk", "1%"),
    ({"phases": [{"tokens": 0, "seq_length": 8, "global_batch_size": 8}]}, "phases[0].tokens", "1"),
    ({"phases": [{"tokens": 1, "seq_length": 8, "global_batch_size": 8, "layout": "fast"}]},
     "phases[0].layout", "best"),
    ({"phases": [{"tokens": 1, "seq_length": 8, "global_batch_size": 8, "layout": {"num_gpus": 8}}]},
     "phases[0].layout.num_gpus", None),
    ({"phases": [{"tokens": 1, "seq_length": 8, "global_batch_size": 8, "layout": {"risk": "5%"}}]},
     "phases[0].layout.risk", None),
])
def test_what_is_wrong_is_refused_by_its_place(changes: dict[str, Any], field: str, nearest: str | None) -> None:
    with pytest.raises(InputError) as refused:
        phases({**plan({}), **changes})
    assert refused.value.field == field
    assert nearest is None or nearest in str(refused.value.nearest)


def test_a_layout_that_is_not_legal_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError) as refused:
        phases(plan({}, {"tensor_parallel": 3}))
    assert refused.value.field.startswith("phases[1].")
    assert refused.value.nearest


def test_a_change_that_is_not_counted_is_refused() -> None:
    with pytest.raises(InputError, match="data_parallel_replicas"):
        phases(plan({}, {"data_parallel_replicas": 2, "tensor_parallel": 2}))


@pytest.mark.slow
def test_the_best_layout_is_the_fastest_of_the_accepted_risk() -> None:
    """The plan's risk holds unless another one is asked for, and a layout that may run out is not the best."""
    asked = {"model": "llama-2-7b", "gpu": "h100-80gb", "num_gpus": 2, "risk": "50%", "phases": [
        {"tokens": 10**9, "seq_length": 4096, "global_batch_size": 16}]}
    answer = phases(asked)
    (phase,), accepted = answer.phases, answer.risk
    assert accepted == pytest.approx(0.5, rel=1e-4)
    assert phase.verdict == "fits"
    assert 0.2 < phase.run_out_probability < 0.5
    with pytest.raises(InputError, match="nothing fits"):
        phases(asked, "20%")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("\n".join((
        'model = "llama-3.2-1b"', 'gpu = "h100-80gb"', "num_gpus = 8", *(
            f"[[phases]]\ntokens = 9\nseq_length = 1024\nglobal_batch_size = 8\nlayout = {{ tensor_parallel = {size} }}"
            for size in (1, 2)))), encoding="utf-8")
    assert exit_code(["phases", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema("phases"))
    assert exit_code(["phases", str(file)]) == 0
    text = capsys.readouterr().out
    assert "phase 2: TP 2, DP 4" in text
    assert f"nine were within {document['phases'][0]['error']:.1%} of the predicted time" in text
    assert exit_code(["phases", str(tmp_path)]) == 2
    assert exit_code(["phases", str(file), "--risk", "60%"]) == 2
