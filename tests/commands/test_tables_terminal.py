"""Tables in the terminal: as wide as it is, nothing cropped, verdicts in colour and always in words."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys

import pytest
from rich.console import Console

from shardmath.cli.main import exit_code
from shardmath.reports.tables import table

EXPLAIN = "explain llama-3.1-70b --gpu h100-80gb --tp 4 --pp 8 --num-gpus 64"
COMMANDS = (EXPLAIN, "sweep llama-3.1-70b --gpu h100-80gb --num-gpus 512 --global-batch-size 1024", "models", "gpus",
            "networks", "formula loss.saved", "formula --list",
            "scale llama-3.1-70b --gpu h100-80gb --num-gpus 64,256,1024 --global-batch-size 1024",
            "moves llama-3.1-70b --gpu h100-80gb --tp 4 --pp 4 --num-gpus 64 --global-batch-size 512",
            "phases docs/systems/phases.toml", "prove sequence-parallel-gain", "prove --list",
            "plan llama-3.1-8b --tokens 15T --gpu h100-80gb,h200-141gb --deadline 60d --budget 2M "
            "--price h100-80gb=2.1 --carbon us --pause 10s --restart 5m",
            "snapshot docs/snapshots/h100.pickle --run docs/snapshots/small.json --gpu h100-80gb --gpus 1 --seq 1024 "
            "--no-distributed-optimizer --kernel peak=megatron_local --kernel optimizer_kernel=foreach "
            "--kernel weight_gradient=separate --kernel rope=unfused --kernel value=view",
            "explore docs/spaces/llama-8b-32.toml --method bounds",
            "recommend llama-3.1-8b --gpu h100-80gb --num-gpus 16 --global-batch-size 64",
            "fit llama-3.1-8b --gpu h100-80gb --num-gpus 16 --global-batch-size 64 --tp 2",
            "compare llama-3.1-8b --gpu h100-80gb --tp 4 --num-gpus 16 --against '--tp 2 --pp 2'")
#: Digits of a figure; a table that cuts one has others.
NUMBER = re.compile(r"(?<![\w.,-])[-+<]?\d[\d,.]*(?:[KMBT]|%)?(?![\w.,-])")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def in_a_terminal(command: str, **environment: str) -> str:
    """What a command prints into a pseudo-terminal."""
    own, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "shardmath", *command.split()], stdout=other, stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", **environment},
    )
    os.close(other)
    text = b""
    while True:
        try:
            part = os.read(own, 65536)
        except OSError:  # Linux says so where macOS says that it is the end
            break
        if not part:
            break
        text += part
    os.close(own)
    assert process.wait() == 0
    return text.decode().replace("\r\n", "\n")


def piped(command: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "shardmath", *command.split()], capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"} | environment,
    ).stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert exit_code(shlex.split(command)) == 0
    text = capsys.readouterr().out.partition("\nTo launch the first")[0]  # a script is as wide as its lines
    lines = text.splitlines()
    assert max(map(len, lines)) > 60
    monkeypatch.setenv("COLUMNS", "400")
    assert exit_code(shlex.split(command)) == 0
    assert {*NUMBER.findall(text)} <= {*NUMBER.findall(capsys.readouterr().out)}  # numbers are whole
    wide = [line for line in lines if len(line.rstrip()) > 80 and not line.startswith(("    ", "where "))]
    assert wide == []  # but for formulas, which the terminal wraps


@pytest.mark.slow
def test_verdicts_have_colours_and_words() -> None:
    text = in_a_terminal(EXPLAIN, COLUMNS="120")
    assert "\x1b[32mfits\x1b[0m" in text
    assert "\x1b[33muncertain\x1b[0m" in text
    plain = in_a_terminal(EXPLAIN, COLUMNS="120", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", plain)
    assert ESCAPES.sub("", plain) == ESCAPES.sub("", text)
    assert "uncertain" in plain


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 8])
def test_a_pipe_gets_plain_text_as_wide_as_reports(ranks: int) -> None:
    text = piped(f"{EXPLAIN.replace('--pp 8', f'--pp {ranks}')} --full")
    assert "\x1b" not in text
    assert "stage.attention_norm.optimizer" in text
    assert "stage.all_parameters" in text


def rendered(width: int, **options: object) -> list[str]:
    console = Console(width=width, color_system=None)
    rows = [("alpha beta", "123,456,789", "some words about it"), ("gamma", "1", "others")]
    built = table(("name", "count", "meaning"), rows, right=(1,), **options)  # type: ignore[arg-type]
    with console.capture() as capture:
        console.print(built)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_columns_come_closer_then_the_spare_ones_go() -> None:
    wide, closer, without = (rendered(width, spare=("count",)) for width in (80, 44, 34))
    assert any("alpha beta   123,456,789   some words about it" in line for line in wide)
    assert any("alpha beta 123,456,789 some words about it" in line for line in closer)
    assert not any("123,456,789" in line for line in without)
    assert any("some words about it" in line for line in without)


def test_the_last_column_that_is_left_wraps() -> None:
    console = Console(width=24, color_system=None)
    rows = [("alpha", "93.1%", "some words about it", "spent.alpha")]
    with console.capture() as capture:
        console.print(table(("part", "share", "", "term"), rows, right=(1,), spare=("term",)))
    assert [line.rstrip() for line in capture.get().splitlines()] == [
        "",
        " part  share",
        f" {'─' * 22}",
        " alpha 93.1% some words",
        "             about it",
        "",
        "Left out at this width:",
        "term.",
    ]


def test_names_are_cut_at_their_signs_and_numbers_stay_whole() -> None:
    console = Console(width=40, color_system=None)
    rows = [("  stage.attention_norm", "-21,613,182,976", "one"), ("micro_batch_size", "1", "h100-80gb")]
    with console.capture() as capture:
        console.print(table(("tensor", "tokens/s/GPU", ""), rows, right=(1,)))
    assert [line.rstrip() for line in capture.get().splitlines()] == [
        "",
        " tensor          tokens/s/GPU",
        f" {'─' * 38}",
        "   stage.     -21,613,182,976 one",
        "   attention_",
        "   norm",
        " micro_batch_               1 h100-80gb",
        " size",
        "",
    ]


def test_a_title_is_as_wide_as_the_terminal() -> None:
    title = "A title of more words than the columns below"
    assert rendered(60, title=title)[:2] == [title, ""]
    assert rendered(34, title=title)[:2] == ["A title of more words than the", "columns below"]


def test_columns_that_go_are_named() -> None:
    lines = rendered(34, spare=("count",))
    assert lines[-1] == "Left out at this width: count."


def test_names_are_folded_and_a_number_is_whole_or_its_column_is_named() -> None:
    for width in range(12, 40):
        text = "\n".join(rendered(width))
        gone = " ".join(text.partition("Left out")[2].split())
        assert all(sign in text for sign in "alphbetgm")
        assert ("123,456,789" in text) != ("count" in gone), width
        assert all(word in text for word in ("words", "others")) != ("meaning" in gone), width
