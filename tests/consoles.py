"""Commands in a document with what they print: read from its text, run in this process, compared."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardmath.cli.main import exit_code

_BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)
#: A line that stands for any number of lines.
_REST = "...\n"


@dataclass(frozen=True)
class Shown:
    """A command in a document, and what the document says that it prints."""

    document: Path
    command: str
    output: str

    def check(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Compare with what it prints; with UPDATE_DOCUMENTS=1 in the environment, write that instead."""
        output = printed(self.command, capsys)
        if os.environ.get("UPDATE_DOCUMENTS"):
            text = self.document.read_text(encoding="utf-8")
            block = f"```console\n$ {self.command}\n"
            anew = _shortened(output, self.output)
            self.document.write_text(text.replace(f"{block}{self.output}```", f"{block}{anew}```"), encoding="utf-8")
            return
        pattern = ".*".join(re.escape(part) for part in re.split(rf"(?m)^{re.escape(_REST)}", self.output))
        assert re.fullmatch(pattern, output, re.DOTALL), output


def _shortened(output: str, old: str) -> str:
    """Return an output with the gaps of the old one, and as many lines before, between and after them.

    Lines between two gaps begin where their first line is but for its numbers. Raises ValueError where it is nowhere.
    """
    if _REST not in old:
        return output
    first, *between, last = old.split(_REST)
    lines = output.splitlines(keepends=True)
    place = first.count("\n")
    parts = ["".join(lines[:place])]
    for part in between:
        head, length = _words(part.splitlines(keepends=True)[0]), part.count("\n")
        place = [_words(line) for line in lines].index(head, place)
        parts.append("".join(lines[place:place + length]))
        place += length
    parts.append("".join(lines[len(lines) - last.count("\n"):]))
    return _REST.join(parts)


def _words(line: str) -> str:
    return " ".join(re.sub(r"[\d.,]+", "0", line).split())


def shown(document: Path) -> list[Shown]:
    """All commands of a document that have an output."""
    found = _BLOCK.finditer(document.read_text(encoding="utf-8"))
    return [Shown(document, match["command"], match["output"]) for match in found]


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, or why it refuses, without blanks at the ends of lines."""
    name, *arguments = shlex.split(command)
    assert name == "shardmath"
    code, found = exit_code(arguments), capsys.readouterr()
    assert code == 0 or (code == 2 and not found.out)
    lines = [line.rstrip() for line in (found.out or found.err).splitlines()]
    return "".join(f"{line}\n" for line in lines)
