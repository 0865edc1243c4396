"""``shardmath check`` and the exit codes that say that nothing fits; the action and the wrapper that use them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from shardmath.cli.main import exit_code

ROOT = Path(__file__).resolve().parents[2]
FITS = "tests/data/formats/megatron_test_tp2_pp2.yaml"
MAY_FIT = "tests/data/formats/nemo_llama3.1_70b.yaml"
TOO_LARGE = "tests/data/formats/torchtitan_llama3_8b.toml"
NOTHING = "llama-3.1-70b --gpu a100-40gb --num-gpus 2 --global-batch-size 8"
SOMETHING = "llama-3.2-1b --gpu h100-80gb --num-gpus 2 --global-batch-size 8"

slow = pytest.mark.slow


@slow
@pytest.mark.parametrize(("arguments", "code", "line"), [
    (f"{FITS} --gpu h100-80gb", 0, rf"{re.escape(FITS)}: fits: 1\.89 of 80 GiB \(2\.4%\) on pipeline rank 0, "),
    (f"{MAY_FIT} --gpu h100-80gb", 3, rf"{re.escape(MAY_FIT)}: uncertain: 49\.28 of 80 GiB \(61\.6%\) on pipeline rank "
     r"0, runs out with a probability of 7\.9%, by the 80 % rule fits, "),
    (f"{MAY_FIT} --gpu h100-80gb --risk 10%", 0, rf"{re.escape(MAY_FIT)}: fits: "),
    (f"{TOO_LARGE} --gpu h100-80gb", 3, rf"{re.escape(TOO_LARGE)}: out of memory: 121\.62 of 80 GiB"),
    ("llama-3.2-1b --gpu-memory 40", 3, r"llama-3.2-1b: uncertain: 36\.62 of 40 GiB \(91\.5%\) on pipeline rank 0, "
     r"runs out with a probability of 70\.5%, by the 80 % rule uncertain$"),
    ("llama-3.2-1b --gpu-memory 40 --allow-uncertain", 0, r"llama-3.2-1b: uncertain: "),
    ("llama-3.2-1b --gpu-memory 30 --allow-uncertain", 3, r"llama-3.2-1b: out of memory: "),
])
def test_one_line_and_an_exit_code(
    arguments: str, code: int, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert exit_code(["check", *arguments.split()]) == code
    (printed,) = capsys.readouterr().out.splitlines()
    assert re.match(line, printed), printed


@pytest.mark.parametrize(("arguments", "said"), [
    ("llama-3.2-1b", "gpu = absent: must be given"),
    ("no.sbatch --gpu h100-80gb", "no.sbatch"),
    ("llama-3.2-1b --gpu h100-80gb --tp 3", "tensor_parallel = 3"),
])
def test_bad_input_is_no_verdict(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["check", *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


@slow
@pytest.mark.parametrize("command", ["sweep", "recommend", "scale"])
def test_searches_fail_where_nothing_fits_if_they_are_asked_to(
    command: str, capsys: pytest.CaptureFixture[str],
) -> None:
    for job, code in ((NOTHING, 3), (SOMETHING, 0)):
        arguments = [command, *job.split()]
        assert exit_code(arguments) == 0
        without = capsys.readouterr().out
        assert exit_code([*arguments, "--fail-if-nothing-fits"]) == code
        assert capsys.readouterr().out == without


@pytest.mark.process
def test_the_action_checks_every_file_and_fails_if_one_does_not_fit() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    *_, step = action["runs"]["steps"]
    assert {name.lower() for name in step["env"]} == action["inputs"].keys()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for files, code, lines in ((f"{TOO_LARGE} {FITS}", 3, 2), (FITS, 0, 1)):
        given = {**os.environ, "PATH": path, "FILES": files, "GPU": "h100-80gb", "OPTIONS": "--micro-batch-size 1"}
        done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=ROOT, env=given, capture_output=True, text=True,
                              check=False)
        assert (done.returncode, len(done.stdout.splitlines())) == (code, lines), done.stderr


@pytest.mark.process
def test_the_wrapper_submits_what_fits_only(tmp_path: Path) -> None:
    (wrapper,) = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "check.md").read_text(encoding="utf-8"), re.DOTALL)
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/sh\necho "submitted $1"\n', encoding="utf-8")
    sbatch.chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    for file, submitted in ((FITS, True), (TOO_LARGE, False)):
        done = subprocess.run(["bash", "-c", wrapper, "submit.sh", file], cwd=ROOT, env={**os.environ, "PATH": path},
                              capture_output=True, text=True, check=False)
        assert (f"submitted {file}" in done.stdout) == submitted
        assert done.returncode == (0 if submitted else 3)
