"""Answers in Python: a short text, the report in print and in a notebook, data frames, pictures, and all layouts."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from importlib import import_module
from typing import Any

import pytest

import shardmath
from shardmath.answers import Drawn, Reported
from shardmath.cli.main import exit_code
from shardmath.search.spaces import Best, Space

JOB: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "h100-80gb"}
SWEPT: dict[str, Any] = {**JOB, "num_gpus": 8, "global_batch_size": 64}
SPACE = Space(axes={"tensor_parallel": [1, 2], "micro_batch_size": [1, 2]}, model="llama-3.2-1b", gpu="h100-80gb",
              fixed={"num_gpus": 2, "global_batch_size": 8}, questions=(Best("least", ("peak",), count=2),))

ANSWERS: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "Explanation": (shardmath.explain, JOB,
                    "llama-3.2-1b on 1 x h100-80gb (80 GiB), megatron, 1 sequence of 8192 tokens"),
    "SweepResult": (shardmath.sweep, SWEPT,
                    "llama-3.2-1b on 8 x h100-80gb (80 GiB), megatron, 64 sequences of 8192 tokens"),
    "Proof": (shardmath.prove, {"claim": "layer.saved < 1"}, "refuted: layer.saved < 1"),
    "Fits": (shardmath.fit, {**SWEPT, "solve": "seq_length"},
             "llama-3.2-1b on h100-80gb (80.00 GiB), megatron: a peak of at most 43.10 GiB"
             " (it runs out with a probability below 0.01)"),
    "Moves": (shardmath.moves, SWEPT,
              "llama-3.2-1b on 8 x h100-80gb (80 GiB), megatron, 64 sequences of 8192 tokens"),
    "Comparison": (shardmath.compare, {**SWEPT, "against": [{"tensor_parallel": 2}]},
                   "A: llama-3.2-1b on 8 x h100-80gb (80 GiB), megatron, 64 sequences of 8192 tokens"),
    "Advice": (shardmath.recommend, SWEPT,
               "llama-3.2-1b on 8 x h100-80gb (80 GiB), megatron, 64 sequences of 8192 tokens: 2,675 legal layouts"),
    "Plan": (shardmath.plan, {"model": "llama-3.2-1b", "tokens": "1T", "gpus": ["h100-80gb"], "num_gpus": [8, 16]},
             "llama-3.2-1b: 1T tokens, 16.8M in a step"),
    "Scaling": (shardmath.scale, {**SWEPT, "num_gpus": [1, 2]},
                "llama-3.2-1b on h100-80gb (80 GiB), megatron, sequences of 8192 tokens"),
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answers() -> dict[str, Reported]:
    return {name: function(**arguments) for name, (function, arguments, _) in ANSWERS.items()}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_short_text_is_the_first_line_of_the_report(name: str, answers: dict[str, Reported]) -> None:
    assert repr(answers[name]) == f"<{name}: {ANSWERS[name][2]}>"


def test_print_and_notebooks_show_what_the_command_prints(
    answers: dict[str, Reported], capsys: pytest.CaptureFixture[str],
) -> None:
    command = "sweep llama-3.2-1b --gpu h100-80gb --num-gpus 8 --global-batch-size 64"
    assert exit_code(command.split()) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line.rstrip() for line in str(answers["SweepResult"]).splitlines()] == printed
    html = answers["SweepResult"]._repr_html_()
    assert html.startswith("<pre style=")
    text = unescape(re.sub(r"<[^>]*>", "", html))
    assert [line.rstrip() for line in text.splitlines()] == printed
    colours = {*re.findall(r"color: (#[0-9a-f]{6})", html)}
    assert len(colours) == 3  # one for each verdict
    for ground in ("#ffffff", "#111111"):  # of notebooks in light and dark
        assert all(_contrast(colour, ground) > 4 for colour in colours), ground


def _contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it."""
    lights = sorted(_luminance(colour) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place:place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_nothing_is_shown_beside_the_report(
    answers: dict[str, Reported], capsys: pytest.CaptureFixture[str],
) -> None:
    for answer in answers.values():
        assert len(str(answer).splitlines()) > 2
    assert capsys.readouterr().out == ""


def test_records_are_the_table_of_the_answer(answers: dict[str, Reported]) -> None:
    account, result = answers["Explanation"], answers["SweepResult"]
    lines = account.records()
    assert list(lines[0]) == ["rank", "term", "component", "role", "bytes"]
    document = account.to_dict()
    assert [line["bytes"] for line in lines] == [line["bytes"] for line in document["ranks"][0]["lines"]]
    best = result.to_dict()["best"]
    assert [item["peak_bytes"] for item in result.records()] == [item["peak_bytes"] for item in best]
    points = answers["Scaling"].records()
    assert [point["num_gpus"] for point in points] == [1, 2]
    assert len({tuple(point) for point in points}) == 1
    assert points[0]["layout.tensor_parallel"] == 1


@pytest.mark.parametrize("name", ANSWERS)
def test_data_frames_have_the_records(name: str, answers: dict[str, Reported]) -> None:
    answer = answers[name]
    records = answer.records()
    assert len(records) > 0
    assert answer.to_pandas().shape == (len(records), len(records[0]))
    assert answer.to_arrow().column_names == [*records[0]] == answer.to_polars().columns
    if name in ("SweepResult", "Scaling", "Plan"):
        assert answer.to_polars().to_dicts() == records == answer.to_arrow().to_pylist()


def test_a_missing_library_is_named_with_the_command(
    answers: dict[str, Reported], monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("shardmath.answers.import_module", without)
    with pytest.raises(ImportError, match=r"needs pandas, which is not installed: pip install pandas$"):
        answers["SweepResult"].to_pandas()


def test_each_public_answer_draws_itself_but_a_proof_has_no_picture() -> None:
    kinds = [kind for name in shardmath.__all__ if isinstance(kind := getattr(shardmath, name), type)
             and issubclass(kind, Reported)]
    assert len(kinds) == 11
    assert [kind.__name__ for kind in kinds if not issubclass(kind, Drawn)] == ["Proof"]
    for kind in kinds:
        if issubclass(kind, Drawn):
            assert callable(import_module(f"{kind._room}.plot").picture)


def test_pictures_are_shown_and_written(answers: dict[str, Reported], tmp_path: Any) -> None:
    account = answers["Explanation"]
    assert isinstance(account, Drawn)
    picture = account.plot()
    assert picture._repr_svg_().startswith("<?xml")
    file = tmp_path / "account.svg"
    account.plot(str(file))
    assert file.read_text(encoding="utf-8") == picture._repr_svg_()
    with pytest.raises(shardmath.InputError, match=r"must end with \.png, \.svg or \.html"):
        account.plot(str(tmp_path / "account.gif"))


def test_layouts_are_all_legal_ones(answers: dict[str, Reported]) -> None:
    result: Any = answers["SweepResult"]
    every = list(shardmath.layouts(**SWEPT))
    assert len(every) == result.legal
    fitting = [item for item in every if item["verdict"] == "fits"]
    assert len(fitting) == result.verdicts["fits"]
    fastest = min(fitting, key=lambda item: item["step_seconds"])
    best = result.records()[0]
    same = ("tensor_parallel", "pipeline_parallel", "micro_batch_size", "recompute", "peak_bytes")
    assert [fastest[name] for name in same] == [best[name] for name in same]
    assert abs(fastest["step_seconds"] - best["step_seconds"]) < 1e-9


def test_an_explored_space_has_its_configurations_as_records() -> None:
    records = shardmath.explore(SPACE).records()
    assert [record["question"] for record in records] == ["least"] * 2
    assert [record["tensor_parallel"] for record in records] == [2, 2]
    assert records[0]["peak"] <= records[1]["peak"]


def test_names_of_the_package_are_those_that_it_promises() -> None:
    assert dir(shardmath) == sorted(shardmath.__all__)
    kinds = [getattr(shardmath, name) for name in ("Advice", "Comparison", "Explanation", "Explored", "Fits", "Moves",
                                                   "Proof", "Scaling", "SweepResult")]
    assert all(issubclass(kind, Reported) for kind in kinds)
    for kind in kinds:
        assert callable(import_module(f"{kind._room}.report").show)
