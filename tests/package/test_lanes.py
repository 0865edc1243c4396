"""A test without a marker belongs to the quick lane, which is refused processes, oracles and the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardmath.files import cached
from shardmath.files.cached import keep, kept


@pytest.mark.parametrize("start", [
    lambda: subprocess.run([sys.executable, "-c", ""], check=True), os.fork, lambda: os.system("true"),
    lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}),
], ids=["subprocess", "fork", "system", "spawn"])
def test_no_test_of_the_quick_lane_starts_a_process(start: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match=r"starts a process: mark it with pytest\.mark\.process"):
        start()


@pytest.mark.parametrize("use", [lambda: kept("evaluators", "none"), lambda: keep("evaluators", "none", b"")])
def test_no_test_of_the_quick_lane_needs_what_is_compiled(
    use: Callable[[], object], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cached, "check_folder", lambda folder: None)  # which a new machine does not have yet
    with pytest.raises(RuntimeError, match=r"mark it with pytest\.mark\.slow"):
        use()


@pytest.mark.parametrize("library", ["torch", "transformers", "megatron", "playwright"])
def test_no_test_of_the_quick_lane_imports_an_oracle(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, library, raising=False)
    with pytest.raises(RuntimeError, match=f"imports {library}"):
        __import__(library)


@pytest.mark.process
def test_a_marked_test_may_start_one() -> None:
    assert subprocess.run([sys.executable, "-c", ""], check=False).returncode == 0


def test_every_test_lies_in_a_room() -> None:
    assert not [*Path(__file__).parents[1].glob("test_*.py")]
