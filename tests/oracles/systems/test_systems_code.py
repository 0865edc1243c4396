"""The code of systems itself, where it is installed: each program counts what its table in ``tests/data`` has."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = (("torchft", "torchft"), ("hivemind", "hivemind"), ("deepspeed", "deepspeed"), ("deepspeed", "pinned"))


@pytest.mark.process
@pytest.mark.parametrize(("library", "name"), PROGRAMS)
def test_a_program_counts_the_rows_of_its_table(library: str, name: str) -> None:
    if find_spec(library) is None:
        pytest.skip(f"without {library} nothing is counted")
    program = [sys.executable, "-W", "ignore", str(HERE / f"{name}_run.py")]
    counted = subprocess.run(program, capture_output=True, text=True, check=False)
    assert counted.returncode == 0, counted.stderr
    assert counted.stdout == (HERE.parent / "data" / f"{name}_counted.csv").read_text(encoding="utf-8")
