"""One model over many GPUs: documented figures, weak and strong scaling, and what is refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shardmath import InputError, recommend, scale
from shardmath.cli.main import exit_code
from shardmath.commands.scale import Scaling
from shardmath.machines import Cluster

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "scaling.md"
#: GPUs of the table, and those from which on the loss is counted.
SIZES, START = (8, 32, 128, 256, 512, 1024, 2048), 128
#: FSDP alone, 2 sequences of 4096 tokens on each GPU. They ran: any layout that may run is looked at.
PAPER: dict[str, Any] = {
    "seq_length": 4096, "tokens_per_gpu": 8192, "implementation": "torchtitan", "zero_stage": 3,
    "context_parallel": (1,), "pipeline_parallel": (1,), "recompute": ("none",),
    "risk": "50%",
}


@cache
def _found(
    tensor_parallel: int, gpu: str = "h100-80gb", sizes: tuple[int, ...] = SIZES, **others: Any,
) -> Scaling:
    return scale("llama-2-7b", gpu, sizes, tensor_parallel=(tensor_parallel,), **{**PAPER, **others})


def _loss(found: Scaling, stop: int = 2048) -> float:
    rates = {point.num_gpus: point.tokens_per_second_per_gpu for point in found.points}
    return rates[stop] / rates[START] - 1


def _table() -> Iterator[str]:
    """The rows of the document's table."""
    rates = {size: {point.num_gpus: f"{point.tokens_per_second_per_gpu:,.0f}" for point in _found(size).points}
             for size in (1, 2, 4)}
    for point in _found(1).points:
        assert point.time is not None
        size = point.num_gpus
        beside = [rates[tensor][size] if size >= START else "" for tensor in (2, 4)]
        loss = f"{100 * _loss(_found(1), stop=size):.1f} %" if size >= START else ""
        cells = [str(size), rates[1][size], *beside, loss, f"{100 * point.time.mfu:.1f} %",
                 f"{100 * point.waiting:.1f} %", f"{point.watts_per_gpu:.0f}"]
        yield f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _comparison() -> Iterator[str]:
    """The rows that have a measured figure and ours, and what is said of other sizes."""
    watts = {point.num_gpus: point.watts_per_gpu for point in _found(1).points}
    shares = {(gpu, point.num_gpus): 100 * point.time.mfu for gpu in ("a100-80gb", "h100-80gb")
              for point in _found(1, gpu, (32, 256)).points if point.time is not None}
    figures = {
        "throughput of a GPU, 128 to 2048 H100": (-37, 100 * _loss(_found(1))),
        "power of a GPU, 128 to 2048 H100": (-6, 100 * (watts[2048] / watts[128] - 1)),
        "MFU on A100, at 256 GPUs": (60, shares["a100-80gb", 256]),
        "MFU on H100, at 256 GPUs": (41, shares["h100-80gb", 256]),
    }
    yield from (f"| {words} | {measured} % | {ours:.1f} % | {ours - measured:+.1f} |"
                for words, (measured, ours) in figures.items())
    yield f"At 32 GPUs they are {shares['a100-80gb', 32]:.1f} % and {shares['h100-80gb', 32]:.1f} % here."


def _sensitivity() -> Iterator[str]:
    """The loss at 2048 GPUs with half and twice each latency."""
    for name, where, usual in (("node_latency_ns", "in nodes", 3_400), ("network_latency_ns", "between nodes", 14_000)):
        changed = (_found(1, sizes=(START, 2048), **{name: value}) for value in (usual // 2, 2 * usual))
        less, more = (-100 * _loss(found) for found in changed)
        yield f"  With half the latency {where} it is {less:.0f} %, with twice {more:.0f} %."


@pytest.mark.slow
@pytest.mark.parametrize("lines", [_table, _comparison, _sensitivity])
def test_the_document_has_what_is_computed(lines: Callable[[], Iterator[str]]) -> None:
    """With UPDATE_SCALING=1 in the environment the figures are written anew instead of compared."""
    for line in lines():
        text = DOCUMENT.read_text(encoding="utf-8")
        if os.environ.get("UPDATE_SCALING"):
            begins = re.match(r"(\| [^|]+ \||.*?(?=\d+\.?\d* %))", line)
            assert begins is not None
            replaced, count = re.subn(rf"^{re.escape(begins[0])}.*$", line.replace("\\", ""), text, flags=re.MULTILINE)
            assert count == 1, line
            DOCUMENT.write_text(replaced, encoding="utf-8")
        else:
            assert line in text.splitlines()


@pytest.mark.slow
def test_the_page_has_the_rates_with_the_usual_risk() -> None:
    alone, two, four = (_found(size, sizes=(8, 32, START, 2048), risk="1%").points for size in (1, 2, 4))
    rates = [f"{point.tokens_per_second_per_gpu:,.0f}" for point in (alone[0], alone[1], two[-1], four[-1])]
    sentences = ("FSDP alone takes one sequence after the other on 8 and 32 GPUs ({} and {} tokens per second and GPU);"
                 " from 128 GPUs on it is the same. On 2048, TP 2 and 4 have {} and {}.")
    assert sentences.format(*rates) in " ".join(DOCUMENT.read_text(encoding="utf-8").split())
    assert [point.layout["micro_batch_size"] for point in alone if point.layout is not None] == [1, 1, 2, 2]
    known = _found(1, sizes=(START, 2048)).points
    assert [point.time for point in alone[2:]] == [point.time for point in known]
    assert alone[-1].tokens_per_second_per_gpu > four[-1].tokens_per_second_per_gpu


@pytest.mark.slow
def test_the_page_of_plans_has_the_gains_of_added_gpus() -> None:
    less, more = (next(point for point in _found(1).points if point.num_gpus == size) for size in (START, 2048))
    rates = [point.num_gpus * point.tokens_per_second_per_gpu for point in (less, more)]
    watts = [point.num_gpus * point.watts_per_gpu for point in (less, more)]
    kept = (rates[1] / rates[0] - 1) / (more.num_gpus / less.num_gpus - 1)
    per_watt = (rates[1] / rates[0] - 1) / (watts[1] / watts[0] - 1)
    page = " ".join((DOCUMENT.parent / "plan.md").read_text(encoding="utf-8").split())
    loss, power = -_loss(_found(1)), 1 - more.watts_per_gpu / less.watts_per_gpu
    assert f"[The same jobs here](scaling.md) give {loss:.1%} and {power:.1%}.".replace("%", " %") in page
    assert f"| tokens per second for each added GPU | 61 % | {100 * kept:.0f} % |" in page
    assert f"| tokens per second for each added watt | 65 % | {100 * per_watt:.0f} % |" in page


@pytest.mark.slow
def test_the_returns_diminish_as_they_were_measured() -> None:
    """Within what the measurements say in round figures, and tensor parallelism wins at scale alone."""
    assert _loss(_found(1)) == pytest.approx(-0.37, abs=0.05)
    rates = {size: {point.num_gpus: point.tokens_per_second_per_gpu for point in _found(size).points}
             for size in (1, 2, 4)}
    assert rates[1][128] > rates[2][128] > rates[4][128]
    assert rates[2][2048] > rates[4][2048] > rates[1][2048]
    falling = [rates[1][size] for size in sorted(rates[1])]
    assert falling == sorted(falling, reverse=True)


@pytest.mark.slow
def test_a_point_is_what_is_recommended() -> None:
    point = scale("llama-2-13b", "h100-80gb", (64,), global_batch_size=128, seq_length=4096).points[0]
    choice = recommend("llama-2-13b", "h100-80gb", 64, global_batch_size=128, seq_length=4096).choices[0]
    assert point.layout == choice.layout
    assert point.time == choice.time
    assert point.peak_bytes == choice.explanation.peak.total


@pytest.mark.slow
def test_strong_scaling_keeps_the_batch_and_weak_scaling_the_tokens_of_a_gpu() -> None:
    sizes = (16, 64)
    strong = scale("llama-2-7b", "h100-80gb", sizes, global_batch_size=128, virtual_pipeline=(1,))
    assert [point.global_batch_size for point in strong.points] == [128, 128]
    weak = scale("llama-2-7b", "h100-80gb", sizes, tokens_per_gpu=16384, virtual_pipeline=(1,))
    assert [point.global_batch_size for point in weak.points] == [32, 128]
    assert replace(strong.points[1], relative=weak.points[1].relative) == weak.points[1]
    assert weak.points[0].relative == 1


@pytest.mark.slow
def test_sizes_where_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--gpu", "a100-40gb", "--global-batch-size", "64", "--vpp", "1"]
    assert exit_code(["scale", "llama-2-13b", "--num-gpus", "1,43,16", *job]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[1].startswith("Fastest: 16 GPUs with ")
    assert "On 1 GPU nothing fits." in text
    assert exit_code(["scale", "llama-2-13b", "--num-gpus", "1", *job]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "No layout fits on any of these numbers of GPUs."
    assert "On 43 GPUs no layout is legal; micro_batch_size = 1: times data_parallel must divide" in text
    assert "data_parallel = 43); nearest legal: global_batch_size 43 or 86." in " ".join(text.split())


@pytest.mark.slow
def test_the_best_sizes_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["scale", "llama-2-7b", "--gpu", "h100-80gb", "--num-gpus", "8,16,512", "--tokens-per-gpu", "8192",
           "--vpp", "1"]
    assert exit_code([*job, "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    totals = [point["num_gpus"] * point["time"]["tokens_per_second_per_gpu"] for point in points]
    rates = [point["time"]["tokens_per_second_per_gpu"] for point in points]
    assert exit_code(job) == 0
    head, fastest, most, error, *_ = capsys.readouterr().out.splitlines()
    assert head.startswith("llama-2-7b on h100-80gb")
    assert totals[2] == max(totals)
    assert fastest.startswith("Fastest: 512 GPUs with TP ")
    assert f" {totals[2]:,.0f} tokens/s, {points[2]['time']['seconds']:.3f} s a step" in fastest
    size = points[rates.index(max(rates))]["num_gpus"]
    assert most.startswith(f"Most for each GPU: {size} GPUs, {max(rates):,.0f} tokens/s")
    assert error.startswith("Of ten measured steps on such GPUs nine were within")


@pytest.mark.slow
def test_cost_and_energy() -> None:
    cluster = Cluster.named("h100-80gb").model_copy(update={"cents_per_gpu_hour": 250})
    point = scale("llama-2-7b", cluster, (8,), tokens_per_gpu=8192, virtual_pipeline=(1,)).points[0]
    assert point.time is not None
    assert point.time.cost_per_token * point.time.tokens_per_second == pytest.approx(8 * 2.5 / 3600)
    assert point.tokens_per_joule * point.watts_per_gpu == pytest.approx(point.time.tokens_per_second_per_gpu)
    assert 0 < point.watts_per_gpu <= 700


@pytest.mark.slow
def test_json_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ["scale", "llama-2-7b", "--gpu", "h100-80gb", "--num-gpus", "8,16", "--tokens-per-gpu", "8192", "--vpp", "1"]
    assert exit_code([*job, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    points = document["points"]
    assert document["risk"] == 0.01
    assert [point["num_gpus"] for point in points] == [8, 16]
    assert points[0]["relative"] == 1
    pytest.importorskip("matplotlib")
    files = [tmp_path / name for name in ("one.svg", "two.svg", "one.png")]
    for file in files:
        assert exit_code([*job, "--plot", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    assert b"tokens/s of a GPU" in files[0].read_bytes()
    assert files[2].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("changes", "field"), [
    ({"tokens_per_gpu": 1000}, "tokens_per_gpu"), ({"tokens_per_gpu": 8192, "global_batch_size": 8}, "tokens_per_gpu"),
    ({}, "global_batch_size"), ({"global_batch_size": 8, "num_gpus": ()}, "num_gpus"),
    ({"global_batch_size": 8, "num_gpus": (0,)}, "num_gpus"), ({"global_batch_size": 8, "gpu": "x100"}, "gpu"),
])
def test_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        scale("llama-2-7b", **{"gpu": "h100-80gb", "num_gpus": (8,), **changes})
    assert refused.value.field == field


def test_a_plot_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ["scale", "llama-2-7b", "--gpu", "h100-80gb", "--num-gpus", "8", "--tokens-per-gpu", "8192", "--vpp", "1"]
    assert exit_code([*job, "--plot", str(tmp_path / "plot.pdf")]) == 2
    assert "must end with .png, .svg or .html" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
