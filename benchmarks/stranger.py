"""``python -m benchmarks.stranger [--document FILE]``: the way of somebody new, timed from an empty clone.

A fresh clone with an environment, a home and a cache of its own: install, first answer, tutorial, page and notebooks.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

from benchmarks.machine import machine

ROOT = Path(__file__).resolve().parents[1]
#: The first command of the README, and what notebooks need: extras of the package, and tools.
ANSWER = re.search(r"^\$ (shardmath .+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
NOTEBOOK_NEEDS = ("'.[plots,shell]'", "nbclient", "ipykernel", "pandas")
_INSTALL = ".venv/bin/pip install --quiet"
_COMMAND = re.compile(r"^\$ (shardmath .+)$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A stage of the way: its name, commands of a shell in the clone, and whether they are run once more."""

    name: str
    commands: tuple[str, ...]
    twice: bool = True


@dataclass(frozen=True)
class Seconds:
    """Seconds of a step, by the clock and of processors, which a busy machine leaves nearly as they are."""

    clock: float
    processor: float


@dataclass(frozen=True)
class Timed:
    """A step the first time, and once more; None for what nobody does twice."""

    name: str
    commands: int
    first: Seconds
    again: Seconds | None


def steps() -> tuple[Step, ...]:
    """Return the way: from a clone to the notebooks."""
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    notebooks = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    assert ANSWER is not None
    return (
        Step("install", (f"{shlex.quote(sys.executable)} -m venv .venv", f"{_INSTALL} ."), twice=False),
        Step("help", ("shardmath --help",)),
        Step("first answer (README)", (ANSWER[1],)),
        Step("tutorial", tuple(_COMMAND.findall(tutorial))),
        Step("page", ("shardmath page --quiet -o page.html",)),
        Step("install what notebooks need", (f"{_INSTALL} {' '.join(NOTEBOOK_NEEDS)}",), twice=False),
        *(Step(f"notebook {path.stem}", (f"jupyter-execute docs/notebooks/{path.name}",)) for path in notebooks),
    )


def timed(folder: Path) -> Iterator[Timed]:
    """Yield the steps with their times, in a clone in ``folder``. Raises CalledProcessError where one fails."""
    clone = folder / "shardmath"
    yield Timed("clone", 1, _seconds((f"git clone --quiet {ROOT} {clone}",), folder, dict(os.environ)), None)
    environment = {
        "PATH": f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}", "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "LANG", "LC_"))},
    }
    for step in steps():
        first = _seconds(step.commands, clone, environment)
        again = _seconds(step.commands, clone, environment) if step.twice else None
        yield Timed(step.name, len(step.commands), first, again)


def _seconds(commands: tuple[str, ...], folder: Path, environment: Mapping[str, str]) -> Seconds:
    """Run commands one after another; return their seconds. Raises CalledProcessError where one fails."""
    start, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    for command in commands:
        subprocess.run(command, shell=True, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Seconds(time.perf_counter() - start, processor)


def table(times: list[Timed]) -> str:
    """Return the times as a table; the ratio of processor seconds is to the first answer, asked again."""
    unit = next(row.again for row in times if row.name.startswith("first answer"))
    assert unit is not None
    lines = ["| step | commands | seconds | again | processor seconds | again | / first answer, again |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for row in times:
        clock, processor = (("-", "-") if row.again is None else
                            (f"{row.again.clock:.1f}", f"{row.again.processor:.1f}"))
        lines.append(f"| {row.name} | {row.commands} | {row.first.clock:.1f} | {clock} | {row.first.processor:.1f} |"
                     f" {processor} | {row.first.processor / unit.processor:.1f} |")
    return "\n".join(lines)


def document(times: list[Timed], about: Mapping[str, str], day: str) -> str:
    """Return docs/first-steps.md."""
    words = "\n".join(f"{name:<10} {value}" for name, value in about.items() if name != "compiler")
    return f"""# First steps, timed

Written by `python -m benchmarks.stranger --document docs/first-steps.md` on {day}: a fresh clone of this
repository, a new environment, and an empty cache, in a folder of their own. Installing includes the downloads
of all that shardmath needs. Every command of the [tutorial](tutorial.md) is a new process; notebooks are
executed whole, with the start of their kernel. *Again* is the same with the cache that the first time filled.
Seconds depend on machine and network; ratios of processor seconds can be compared.

```text
{words}
```

{table(times)}
"""


def main(arguments: list[str]) -> int:
    """Walk the way; print the table, or write the document. Return the exit code 0."""
    parser = argparse.ArgumentParser(description="Time the way of somebody new, from an empty clone.")
    parser.add_argument("--document", type=Path, help="write this Markdown file instead of printing the table")
    asked = parser.parse_args(arguments)
    about = machine()
    with TemporaryDirectory() as folder:
        times = []
        for row in timed(Path(folder)):
            times.append(row)
            sys.stderr.write(f"{row.name}: {row.first.clock:.1f} s\n")
    if asked.document is None:
        sys.stdout.write(f"{table(times)}\n")
    else:
        asked.document.write_text(document(times, about, date.today().isoformat()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
