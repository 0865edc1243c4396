"""A sweep on a GPU: kernels, on the simulator in a process of its own, and what is refused without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_space
from numba import cuda

from shardmath.cli.main import exit_code
from shardmath.commands.explore.run import explore
from shardmath.errors import InputError

KERNELS = Path(__file__).parents[1] / "cuda_kernels.py"


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["1", "0"], ids=["simulator", "gpu"])
def test_kernels(simulator: str) -> None:
    if simulator == "0" and not cuda.is_available():
        pytest.skip("needs a GPU")
    if simulator == "1" and np.lib.NumpyVersion(np.__version__) < "2.2.0":
        pytest.skip("in the threads of the simulator, NumPy before 2.2 makes a float of an index and a constant")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", str(KERNELS)], check=False,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": simulator}, cwd=KERNELS.parents[1], capture_output=True, text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(("arguments", "rule"), [
    ({"device": "cuda"}, "must have a GPU"), ({"device": "tpu"}, "nearest legal: cpu or cuda"),
    ({"device": "cuda", "threads": 2}, "must not be given with threads"),
    ({"device": "cuda", "dask": "local"}, "must not be given with threads or a cluster"),
])
def test_what_cannot_work_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], rule: str,
) -> None:
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=f"^device = .*{rule}"):
        explore(small_space.space(), rows=tmp_path / "rows.csv", checkpoint=tmp_path / "state", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    assert exit_code(["explore", str(small_space.file_in(tmp_path)), "--device", "cuda"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert "shardmath[cuda]" in output.err
