"""The full run is as large as promised, and what is missing is said, not passed over."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from importlib import import_module
from math import prod
from pathlib import Path

from oracles.extent import cases

FOLDER = Path(__file__).parent

HIDE_TORCH = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
"""


def _name(file: Path) -> str:
    return ".".join(("oracles", *file.relative_to(FOLDER).with_suffix("").parts))


def test_a_full_run_has_two_thousand_random_cases() -> None:
    declared = {}
    for file in sorted(FOLDER.rglob("test_*.py")):
        for name, test in inspect.getmembers(import_module(_name(file)), inspect.isfunction):
            if name.startswith("test_") and {"draw", "draws"} & inspect.signature(test).parameters.keys():
                variants = [mark.args[1] for mark in test.pytestmark if mark.name == "parametrize"]
                declared[f"{file.stem}.{name}"] = cases(test, full=True) * prod(len(each) for each in variants)
    assert sum(declared.values()) >= 2000, declared


def test_without_torch_every_file_is_skipped_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(HIDE_TORCH)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "hidden", "-n", "0", "-rs", str(FOLDER)], cwd=FOLDER.parents[1],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )
    files = len(list(FOLDER.rglob("test_*.py")))
    assert f"{files} skipped" in run.stdout, run.stdout + run.stderr
    assert "without torch nothing is counted; `make oracle` installs them" in run.stdout
    assert "failed" not in run.stdout
    assert "error" not in run.stdout
