"""The line of a command that takes its time: when it appears, what it says at first use, and when it goes."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from shardmath import InputError, explain
from shardmath.cli.main import exit_code
from shardmath.files import cached
from shardmath.reports import waiting as module
from shardmath.reports.progress import progress
from shardmath.reports.waiting import Line, hushed, making, say, waiting

SCRIPT = Path(__file__).resolve().parents[1] / "data" / "formats" / "torchtitan_llama3_8b.toml"
GPU = "--gpu (a name of `shardmath gpus`, or a cluster file)"
SWEEP = ["sweep", "llama-3.1-8b"]


class Terminal(io.StringIO):
    """A standard error that somebody watches."""

    def isatty(self) -> bool:
        """Return that it is watched."""
        return True


def watched(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of the standard error, where lines appear at once."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(module, "PATIENCE", 0)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def shown(line: Line) -> Line:
    """The line, once its thread has written it."""
    line._timer.join()
    return line


def test_a_line_says_what_is_made_at_first_use_and_goes_before_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = watched(monkeypatch)
    with waiting("searching layouts"):
        line = shown(module._running[0])
        with making("evaluators/key"):
            assert line.text == "first use: deriving formulas for these choices, kept for the next time"
        with making("switches"):
            assert line.text == "searching layouts"
        assert line._shown is not None
        assert line._shown.is_started
        say("answer")
        assert not module._running
        assert not line._shown.is_started
    assert "searching layouts" in terminal.getvalue()
    assert capsys.readouterr().out == "answer\n"


def test_nothing_is_shown_in_pipes_nor_where_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    with hushed(True), waiting("searching layouts"), progress("layouts") as bar:
        assert bar is None
        assert not module._running
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with waiting("searching layouts"):
        assert not module._running
    assert terminal.getvalue() == ""


def test_a_bar_takes_the_place_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    monkeypatch.setattr("shardmath.reports.progress.PATIENCE", 0)
    with waiting("searching layouts"), progress("layouts") as bar:
        shown(module._running[0])
        assert bar is not None
        bar(0, 10)
        bar(5, 10)
        assert not module._running
    assert "5 of 10 layouts" in terminal.getvalue()


def test_what_is_kept_is_made_in_the_watched_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kinds: list[str] = []

    def noted(kind: str) -> object:
        kinds.append(kind)
        return making(kind)

    monkeypatch.setattr(cached, "_watched", [noted])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tmp_path.chmod(0o700)
    assert [cached.cached_text("switches", "a test.json", lambda: "[]") for _ in range(2)] == ["[]", "[]"]
    assert kinds == ["switches"]


@pytest.mark.slow
def test_quiet_leaves_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", str(SCRIPT), "--gpu", "h100-80gb"]
    code = exit_code(arguments)
    loud = capsys.readouterr()
    assert "note: " in loud.err
    assert exit_code([*arguments, "--quiet"]) == code
    quiet = capsys.readouterr()
    assert (quiet.out, quiet.err) == (loud.out, "")
    assert exit_code(["explain", "no-such-model", "--gpu", "h100-80gb", "-q"]) == 2
    assert capsys.readouterr().err.startswith("error: model = ")


@pytest.mark.parametrize(("arguments", "missing"), [
    (SWEEP, f"--gpus (GPUs of the job), --gbs (sequences per step), {GPU}"),
    ([*SWEEP, "--gpu-memory", "80", "--gbs", "8"], "--gpus (GPUs of the job)"),
    (["explain"], f"MODEL, {GPU}"),
    (["evaluate"], "TABLE, -o (parquet file to write)"),
    (["phases"], "FILE"),
])
def test_all_that_is_missing_is_named_at_once(
    arguments: list[str], missing: str, capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(arguments) == 2
    assert capsys.readouterr().err == f"error: missing: {missing}\n"


@pytest.mark.parametrize(("model", "gpu", "nearest"), [
    ("llama-3.1-8b", "h100-sxm", "h100-80gb or h100-pcie-80gb or h100-nvl-94gb"),
    ("llama-3.1-8b", "a100-sxm4-80gb", "a100-80gb or a100-pcie-80gb"),
    ("gemma-3", "h100-80gb", "gemma-3-1b or gemma-3-4b or gemma-3-12b or gemma-3-27b"),
    ("dolphin/Llama-3.1-8B-Dolphin", "h100-80gb", "llama-3.1-8b"),
])
def test_the_nearest_name_is_the_one_that_was_meant(model: str, gpu: str, nearest: str) -> None:
    with pytest.raises(InputError, match=rf"; nearest legal: {re.escape(nearest)}$"):
        explain(model, gpu)


def test_short_names_of_the_command_line_are_understood_in_python() -> None:
    with pytest.raises(InputError, match=r"; nearest legal: tensor_parallel$"):
        explain("llama-3.1-8b", "h100-80gb", tp=4)
    with pytest.raises(InputError, match=r"; nearest legal: num_gpus$"):
        explain("llama-3.1-8b", "h100-80gb", gpus=4)
