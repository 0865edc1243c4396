"""What the command line lists: every entry of the catalogue, in a readable width, and as JSON."""

from __future__ import annotations

import json

import pytest

from shardmath.catalogue import read
from shardmath.cli.main import exit_code
from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS


@pytest.mark.parametrize("table", ["gpus", "networks"])
def test_every_entry_is_one_line_of_at_most_100_columns(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([table]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split()[0] for line in lines[3:] if line] == list(read(table))
    assert max(map(len, lines)) <= 100


def test_speeds_are_in_the_units_of_the_heading(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["gpus"]) == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.split()}
    assert lines["h100-80gb"] == ["80", "8", "989.4", "1,978.9", "3.35", "450", "8", "64", "700"]
    assert lines["mi250x-64gb-per-gcd"] == ["64", "8", "191.5", "-", "1.6384", "-", "-", "-", "280"]
    assert exit_code(["networks"]) == 0
    lines = {line.split()[0]: line.split()[1:4] for line in capsys.readouterr().out.splitlines() if line.split()}
    assert (lines["ndr-400"], lines["efa-p5en"]) == (["400", "-", "14"], ["200", "16", "21"])


@pytest.mark.parametrize("table", ["gpus", "networks"])
def test_json_has_the_figures_of_the_catalogue(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([table, "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)[table]}
    catalogue = read(table)
    assert list(listed) == list(catalogue)
    for name, figures in catalogue.items():
        figures.pop("memory_gib", None)
        assert figures.items() <= listed[name].items()


def test_words_choose_entries(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["models", "LLAMA", "3.1", "--json"]) == 0
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)["models"]]
    assert {"llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b"} <= {*names}
    assert all("llama" in name for name in names)
    assert exit_code(["models", "llama3", "--json"]) == 0
    assert {entry["name"] for entry in json.loads(capsys.readouterr().out)["models"]} == {"llama-3-8b", "llama-3-70b"}
    assert exit_code(["gpus", "h200"]) == 0
    assert "a100" not in capsys.readouterr().out
    assert exit_code(["networks", "nowhere"]) == 2
    assert "word = 'nowhere': must be in the texts of a network" in capsys.readouterr().err


def test_kernels_lists_every_axis_and_option_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert exit_code(["kernels"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert [part.partition(":")[0] for part in text.split("\n\n")] == list(CHOICES)
    for part, (_, options) in zip(text.split("\n\n"), CHOICES.values(), strict=True):
        listed = [line.split()[0] for line in part.splitlines()[1:] if line[:3].strip() and line.startswith("  ")]
        assert listed == list(options)


def test_kernels_says_who_chooses_and_who_has_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["kernels", "activation", "swiglu", "kernel"]) == 0
    assert "unfused  Megatron-Core without fusion" in capsys.readouterr().out
    assert exit_code(["kernels", "core", "attention", "--json"]) == 0
    axis = json.loads(capsys.readouterr().out)["kernels"][0]
    flash = next(option for option in axis["options"] if option["name"] == "flash")
    assert (axis["name"], flash["chosen_by"]) == ("attention", ["megatron"])
    for axis in ("attention", "loss"):
        assert exit_code(["kernels", axis, "--json"]) == 0
        listed = next(item for item in json.loads(capsys.readouterr().out)["kernels"] if item["name"] == axis)
        for name, item in IMPLEMENTATIONS.items():
            assert item["choices"][axis] in [option["name"] for option in listed["options"] if name in option["had_by"]]
    assert exit_code(["kernels", "rop"]) == 0
    assert exit_code(["kernels", "ropes"]) == 2
    assert "nearest legal: rope" in capsys.readouterr().err


def test_the_name_of_an_axis_is_that_axis_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["kernels", "layers", "--json"]) == 0
    assert [axis["name"] for axis in json.loads(capsys.readouterr().out)["kernels"]] == ["layers"]
    assert exit_code(["kernels", "layer", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["kernels"]) > 5
