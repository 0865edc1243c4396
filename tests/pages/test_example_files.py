"""Cluster files: every documented one answers every question, and a network named beside one counts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from oracles.extent import FULL

from shardmath import Cluster, InputError, InputWarning, evaluate, explain, recommend, sweep
from shardmath.cli.main import exit_code
from shardmath.machines import read_cluster

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (*sorted(DOCS.rglob("*.md")), DOCS.parent / "README.md")
#: Every TOML text of the documentation that describes a cluster, with its page.
BLOCKS = {
    f"{page.parent.name}/{page.name} {number}": text
    for page in PAGES
    for number, text in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    if re.search(r"^(gpu = |\[gpu\])", text, re.MULTILINE) and "[axes" not in text
}
BLOCKS |= {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in DOCS.glob("clusters/*.toml")}
#: Those with several kinds of GPUs, and the commands that count them: others refuse them.
SEVERAL = {name for name, text in BLOCKS.items() if "[[kinds]]" in text}
COUNTED = {"explain", "sweep", "recommend"}
QUESTIONS = (
    "explain llama-3.2-1b --tp 2 --pp 2 --num-gpus 16",
    "sweep llama-3.2-1b --num-gpus 16 --global-batch-size 16",
    "recommend llama-3.2-1b --num-gpus 16 --global-batch-size 16",
    "scale llama-3.2-1b --num-gpus 8,16 --global-batch-size 16",
    "moves llama-3.2-1b --tp 2 --num-gpus 16",
    "fit llama-3.2-1b --tp 2 --num-gpus 16",
)
#: Every file answers the first two questions and one of the others in turn; `make oracle` asks all.
ASKED = [
    (name, question) for place, name in enumerate(BLOCKS)
    for question in (QUESTIONS if FULL else (*QUESTIONS[:2], QUESTIONS[2 + place % 4]))
]
ANSWERED, REFUSED = (
    [pytest.param(name, question, id=f"{name}-{question.split()[0]}") for name, question in pairs]
    for pairs in (
        [(name, question) for name, question in ASKED if name not in SEVERAL or question.split()[0] in COUNTED],
        [(name, question) for name in SEVERAL for question in QUESTIONS if question.split()[0] not in COUNTED],
    )
)


def test_there_are_examples() -> None:
    assert {"extending.md", "README.md"} <= {name.split("/")[-1].split()[0] for name in BLOCKS}
    assert "clusters/example.toml" in BLOCKS
    assert "systems/mixed_gpus.md 0" in SEVERAL


@pytest.mark.slow
@pytest.mark.parametrize(("name", "question"), ANSWERED)
def test_a_documented_cluster_answers_with_times(
    name: str, question: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(BLOCKS[name], encoding="utf-8")
    assert exit_code([*question.split(), "--gpu", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    if question.startswith("fit"):
        assert shown["answers"]
        return
    times = {
        "explain": lambda: [shown["time"]["seconds"]],
        "sweep": lambda: [item["step_seconds"] for item in shown["best"]],
        "recommend": lambda: [item["time"]["seconds"] for item in shown["choices"]],
        "scale": lambda: [point["time"]["seconds"] for point in shown["points"]],
        "moves": lambda: [shown["seconds"]],
    }[question.split(maxsplit=1)[0]]()
    assert times
    assert all(seconds > 0 for seconds in times)
    assert shown.get("time_unknown", "") == ""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "question"), REFUSED)
def test_what_is_not_counted_on_several_kinds_is_refused(
    name: str, question: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(BLOCKS[name], encoding="utf-8")
    assert exit_code([*question.split(), "--gpu", str(path), "--json"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "must be a cluster of one kind of GPU: several are counted in explain, sweep and recommend" in shown.err


@pytest.fixture
def alone(tmp_path: Path) -> str:
    """A cluster file that names a GPU and nothing else: a single server."""
    path = tmp_path / "alone.toml"
    path.write_text('gpu = "h100-80gb"\n', encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_a_network_beside_a_cluster_file_counts(alone: str) -> None:
    job = {"num_gpus": 16, "tensor_parallel": 2}
    named = explain("llama-3.2-1b", "h100-80gb", network="hdr-200", **job)
    for machine in (alone, read_cluster(alone)):
        beside = explain("llama-3.2-1b", machine, network="hdr-200", **job)
        assert beside.time == named.time is not None
        with pytest.raises(InputError, match=r"^network = 'hdr-201': must be a network of the catalogue"):
            explain("llama-3.2-1b", machine, network="hdr-201", **job)
    table = {"num_gpus": [16]}
    rows = [
        evaluate(table, "llama-3.2-1b", machine, network="hdr-200", terms=["step.time"], tensor_parallel=2).read_all()
        for machine in (alone, "h100-80gb")
    ]
    assert rows[0].equals(rows[1])
    assert rows[0]["step.time"][0].as_py() == pytest.approx(named.time.seconds)


def test_a_network_wins_over_that_of_the_file_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "joined.toml"
    path.write_text('gpu = "h100-80gb"\nnetwork = "ndr-400"\n', encoding="utf-8")
    said = "network = hdr-200 wins over that of the cluster joined"
    with pytest.warns(InputWarning, match=f"^{said}$"):
        found = explain("llama-3.2-1b", path, network="hdr-200", num_gpus=16)
    assert found.time == explain("llama-3.2-1b", "h100-80gb", network="hdr-200", num_gpus=16).time
    assert explain("llama-3.2-1b", path, network="ndr-400", num_gpus=16).time is not None  # the same: nothing to say
    assert exit_code(f"explain llama-3.2-1b --gpu {path} --network hdr-200 --num-gpus 16".split()) == 0
    assert capsys.readouterr().err == f"warning: {said}\n"


@pytest.mark.slow
def test_a_ranking_by_memory_says_which_figure_is_missing(alone: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = sweep("llama-3.2-1b", alone, 16, global_batch_size=16)
    assert found.time_unknown.startswith("network = absent: must be given")
    assert found.best[0].step_seconds is None
    assert exit_code(f"sweep llama-3.2-1b --gpu {alone} --num-gpus 16 --global-batch-size 16".split()) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Step time is not computed: {found.time_unknown}. Layouts are ranked by memory." in shown
    asked = sweep("llama-3.2-1b", alone, 16, global_batch_size=16, rank_by="memory")
    assert asked.time_unknown == ""
    with pytest.raises(InputError, match=r"^network = absent"):
        recommend("llama-3.2-1b", alone, 16, global_batch_size=16)
    assert sweep("llama-3.2-1b", alone, 16, network="ndr-400", global_batch_size=16).best[0].step_seconds is not None


def test_a_network_needs_a_gpu_of_a_table() -> None:
    with pytest.raises(InputError, match=r"^network = 'ndr-400': must be given with a GPU"):
        evaluate({"num_gpus": [8]}, "llama-3.2-1b", network="ndr-400", terms=["peak"])


def test_the_usual_network_of_a_cluster_is_its_own() -> None:
    assert explain("llama-3.2-1b", Cluster.named("h100-80gb"), num_gpus=16).time is not None
