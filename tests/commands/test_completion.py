"""Completion of names and options in a shell: click's protocol, bash itself, and nothing heavy behind it."""

from __future__ import annotations

import os
import re
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
    f"{EXPLAIN} --tensor": {"--tensor-parallel", "--tensor-parallel-y", "--tensor-parallel-z"},
    f"{EXPLAIN} --gpu=h200": {"--gpu=h200-141gb"},
    f"{EXPLAIN} --kernel=swiglu=e": {"--kernel=swiglu=eager"},
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


@pytest.mark.slow
@pytest.mark.parametrize("line", CASES)
def test_names_and_options_are_completed(line: str) -> None:
    assert completed(line) == CASES[line]


@pytest.mark.process
def test_a_path_is_left_to_the_shell() -> None:
    assert completed("shardmath explain ./conf") == {"./conf"}


@pytest.mark.process
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


@pytest.mark.process
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


ZSH = r"""
zmodload zsh/zpty
zpty -b shell "env TERM=dumb zsh -f -i"
zpty -w shell 'PATH={folder}:$PATH; PS1=; cd {folder}; autoload -Uz compinit; compinit -u -D'
zpty -w shell 'eval "$(shardmath completion zsh)"'
zpty -w shell 'shown() {{ print -r -- "<$BUFFER>"; }}; zle -N shown; bindkey "^X" shown'
zpty -w shell 'zle-line-init() {{ print READ""Y; }}; zle -N zle-line-init'
repeat 600; do zpty -r -t shell part && out+=$part; [[ $out == *READY* ]] && break; sleep 0.05; done
zpty -n -w shell '{line}'$'\t'$'\x18'
out=
repeat 600; do zpty -r -t shell part && out+=$part; [[ $out == *"<"*">"* ]] && break; sleep 0.05; done
print -r -- "$out"
"""
#: What becomes of a line by one tab: what shells complete in one way alone.
LINES = {
    f"{EXPLAIN} --gpu h200": "h200-141gb", f"{EXPLAIN} --kernel swiglu=ea": "swiglu=eager",
    f"{EXPLAIN} --gpu=h200": "--gpu=h200-141gb", "shardmath sweep llama-3.1-8b --recompute none,fu": "none,full",
    "shardmath exp": "expl", "shardmath explain ./shar": "./shardmath",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the command, to be put where a shell looks for commands."""
    command = tmp_path / "shardmath"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shardmath "$@"\n')
    command.chmod(0o755)
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("line", [line for line in LINES if not line.endswith(("exp", "shar"))])
def test_bash_completes(line: str, folder: Path) -> None:
    script = BASH.format(folder=folder, words=line, last=len(line.split()) - 1)
    result = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [LINES[line]]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize("line", LINES)
def test_zsh_completes(line: str, folder: Path) -> None:
    script = ZSH.format(folder=folder, line=line)
    result = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=True)
    assert re.findall(r"<(.*?) ?>", result.stdout) == [f"{line.rpartition(' ')[0]} {LINES[line]}"], result.stdout


@pytest.mark.process
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(folder: Path) -> None:
    script = "set PATH $PATH_OF_IT $PATH; cd $PATH_OF_IT; shardmath completion fish | source\n"
    script += "\n".join(f"complete --do-complete '{line}'; echo end" for line in LINES)
    result = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True,
        env={**os.environ, "PATH_OF_IT": str(folder), "HOME": str(folder)},
    )
    proposed = [part.split("\n") for part in result.stdout.removesuffix("end\n").split("end\n")]
    words = [[item.partition("\t")[0] for item in part if item] for part in proposed]
    expected = [["explain", "explore"] if line.endswith("exp") else [word] for line, word in LINES.items()]
    assert words == expected
    said = dict(item.split("\t") for item in proposed[list(LINES).index("shardmath exp")] if item)
    assert said == {"explain": "Account for every byte of one layout.",
                    "explore": "Answer questions about a declared space."}
