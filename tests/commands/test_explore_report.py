"""The report of a space: answers before counts, histograms of bytes in GiB, and what all rows share said once."""

from __future__ import annotations

import pytest

from shardmath.cli.main import exit_code
from shardmath.commands.explore.answer import Counted
from shardmath.commands.explore.report import _histogram
from shardmath.search.spaces import Histogram

SPACE = """
model = "llama-3.2-1b"
gpu = "h100-80gb"
[fixed]
num_gpus = 8
seq_length = 2048
global_batch_size = 64
[axes]
tensor_parallel = [1, 2, 4]
gradient_bytes = [2, 4]
distributed_optimizer = [0, 1]
[questions.least]
best = ["peak", "tensor_parallel"]
count = 2
[questions.sizes]
histogram = "peak"
edges = ["8 GiB", "16 GiB"]
"""


@pytest.mark.parametrize("edges", [("1 GiB", "1536 MiB"), (2**30, 3 * 2**29)])
def test_a_histogram_of_bytes_is_in_gib(edges: tuple[int, ...]) -> None:
    question = Histogram("sizes", "peak", edges)
    assert question.edges == (2**30, 3 * 2**29)
    built = _histogram("sizes", Counted("peak", "bytes", question.edges, (5, 1200, 7), question), "that fit")
    assert built.title == "sizes: peak, GiB, of those that fit"
    assert [list(column.cells) for column in built.columns[:3]] == [
        ["", "1.00", "1.50"], ["1.00", "1.50", ""], ["5", "1,200", "7"]]


def test_a_histogram_of_other_formulas_has_their_numbers() -> None:
    question = Histogram("sizes", "tensor_parallel", (2000, 4000))
    built = _histogram("sizes", Counted("tensor_parallel", "", question.edges, (5, 0, 7), question), "that fit")
    assert built.title == "sizes: tensor_parallel of those that fit"
    assert list(built.columns[1].cells) == ["2,000", "4,000", ""]


@pytest.mark.slow
def test_answers_come_first_and_what_all_share_is_said_once(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("space") / "space.toml"
    path.write_text(SPACE, encoding="utf-8")
    assert exit_code(["explore", str(path)]) == 0
    text = capsys.readouterr().out
    assert " ".join(text.split()).startswith(
        "least: least peak, then tensor_parallel of those that fit; all with distributed_optimizer 1")
    places = [text.index(words) for words in ("sizes: peak, GiB,", "Configurations by rule", " legal")]
    assert places == sorted(places)
    titles = next(line for line in text.splitlines() if line.startswith(" TP"))
    assert "distributed_optimizer" not in titles
