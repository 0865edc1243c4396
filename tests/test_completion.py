"""Completion of names and options in a shell: click's protocol, bash itself, and nothing heavy behind it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shardmath.cli.main import exit_code

HEAVY = ("sympy", "numba", "numpy", "pydantic", "rich", "jinja2")
EXPLAIN = "shardmath explain llama-3.1-8b"
CASES = {
    "shardmath rec": {"recommend"},
    "shardmath explain llama-3.1-": {"llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b"},
    "shardmath sweep mixtral": {"mixtral-8x7b-v0.1", "mixtral-8x22b-v0.1"},
    f"{EXPLAIN} --gpu h200": {"h200-141gb"},
    f"{EXPLAIN} --network efa-p5": {"efa-p5", "efa-p5en"},
    f"{EXPLAIN} --implementation n": {"nanotron"},
    f"{EXPLAIN} --kernel swiglu=": {"swiglu=fused", "swiglu=eager", "swiglu=unfused"},
    f"{EXPLAIN} --recompute core": {"core_attention", "core_attention+mlp"},
    f"{EXPLAIN} --schedule zb": {"zbv"},
    f"{EXPLAIN} --tensor": {"--tensor-parallel"},
    "shardmath sweep llama-3.1-8b --recompute none,fu": {"none,full"},
    "shardmath completion ": {"bash", "zsh", "fish"},
    "shardmath schema mo": {"models", "moves"},
}


def completed(line: str) -> set[str]:
    """What click proposes for the last word, by the protocol that the printed scripts use."""
    words = line.split(" ")
    asked = {"_SHARDMATH_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    result = subprocess.run(
        [sys.executable, "-m", "shardmath"], capture_output=True, text=True, check=True, env={**os.environ, **asked},
    )
    return {item.partition(",")[2] for item in result.stdout.splitlines()}


@pytest.mark.parametrize("line", CASES)
def test_names_and_options_are_completed(line: str) -> None:
    assert completed(line) == CASES[line]


def test_a_path_is_left_to_the_shell() -> None:
    assert completed("shardmath explain ./conf") == {"./conf"}


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\nfrom shardmath.cli.main import cli\n"
        "try:\n    cli.main(prog_name='shardmath')\nexcept SystemExit:\n    pass\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    line = f"{EXPLAIN} --gpu h"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "_SHARDMATH_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": "4"},
    )
    assert "plain,h100-80gb" in result.stdout
    assert result.stdout.splitlines()[-1] == ""


def test_scripts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for shell, said in (("bash", "complete -o nosort -F"), ("zsh", "#compdef shardmath"), ("fish", "complete")):
        assert exit_code(["completion", shell]) == 0
        text = capsys.readouterr().out
        assert said in text
        assert "_SHARDMATH_COMPLETE" in text
    assert exit_code(["completion", "bahs"]) == 2
    assert "nearest legal: bash" in capsys.readouterr().err


BASH = r"""
PATH={folder}:$PATH
eval "$(shardmath completion bash)"
complete -p shardmath >/dev/null || exit 3
COMP_WORDS=({words}) COMP_CWORD={last}
_shardmath_completion shardmath "${{COMP_WORDS[$COMP_CWORD]}}"
printf '%s\n' "${{COMPREPLY[@]}}"
case $COMP_WORDBREAKS in *=*) exit 4;; esac
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("line", [f"{EXPLAIN} --gpu h200", f"{EXPLAIN} --kernel swiglu=ea"])
def test_bash_completes(line: str, tmp_path: Path) -> None:
    command = tmp_path / "shardmath"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shardmath "$@"\n')
    command.chmod(0o755)
    script = BASH.format(folder=tmp_path, words=line, last=len(line.split()) - 1)
    result = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [{"h200": "h200-141gb", "swiglu=ea": "swiglu=eager"}[line.rsplit(maxsplit=1)[-1]]]
