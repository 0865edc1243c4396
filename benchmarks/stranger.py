"""``python -m benchmarks.stranger [--document FILE]``: time the way of a new user, from a clone to a notebook.

The clone has a folder, an environment, a home and a cache of its own; all of them are empty at the start.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.machine import machine

ROOT = Path(__file__).resolve().parents[1]
#: Times that the page is written from.
RECORD = ROOT / "benchmarks" / "first_steps.json"
NOTEBOOK = "docs/notebooks/choose_a_layout.ipynb"
#: Extras of the package and tools that a notebook needs.
NOTEBOOK_NEEDS = ("'.[plots,shell]'", "nbclient", "ipykernel", "pandas")
_COMMAND = re.compile(r"^\$ (shardmath .+)$", re.MULTILINE)
#: Variables of the machine that a new user has too: settings of pip, of the network and of the language.
_KEPT = re.compile(r"PIP_|LANG|LC_|\w*(?:CERT|CA_BUNDLE|CAINFO|PROXY|proxy)", re.ASCII)
#: Lines of ``machine()`` that say something about this way.
_ABOUT = ("processor", "memory", "system", "versions", "load")
#: A load above this many processes a core means that other programs slowed the clock.
_BUSY = 0.25


@dataclass(frozen=True)
class Step:
    """A stage of the way: its name, the commands of a shell in the clone, and if they are run once more."""

    name: str
    commands: tuple[str, ...]
    twice: bool = True


@dataclass(frozen=True)
class Seconds:
    """Seconds of a step: by the clock, and of processors, which a busy machine changes little."""

    clock: float
    processor: float


@dataclass(frozen=True)
class Timed:
    """A step with its first time; ``again`` is None for a step that nobody does twice."""

    name: str
    commands: int
    first: Seconds
    again: Seconds | None


@dataclass(frozen=True)
class Record:
    """Times of all steps, with the day, the machine, its cores and its load before the run."""

    day: str
    cores: int
    load: float
    about: Mapping[str, str]
    times: tuple[Timed, ...]


def steps() -> tuple[Step, ...]:
    """Return the way: set-up with the first answer, tutorial, page, notebook."""
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    return (
        Step("set up and first answer: `make sweep`", ("make sweep",)),
        Step("help: `shardmath --help`", ("shardmath --help",)),
        Step("all commands of the [tutorial](tutorial.md)", tuple(_COMMAND.findall(tutorial))),
        Step("page: `shardmath page`", ("shardmath page --quiet -o page.html",)),
        Step("install what a notebook needs", (f".venv/bin/pip install --quiet {' '.join(NOTEBOOK_NEEDS)}",), False),
        Step("notebook: [choose a layout](notebooks/choose_a_layout.ipynb)", (f"jupyter-execute {NOTEBOOK}",)),
    )


def timed(folder: Path) -> Iterator[Timed]:
    """Yield the steps with their times, in a clone in ``folder``. Raises CalledProcessError where one fails."""
    clone, home = folder / "shardmath", folder / "home"
    home.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if _KEPT.match(name)},
        "PATH": f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}", "HOME": str(home),
    }
    yield Timed("`git clone`", 1, _seconds((f"git clone --quiet {ROOT} {clone}",), folder, environment), None)
    for step in steps():
        first = _seconds(step.commands, clone, environment)
        again = _seconds(step.commands, clone, environment) if step.twice else None
        yield Timed(step.name, len(step.commands), first, again)


def _seconds(commands: tuple[str, ...], folder: Path, environment: Mapping[str, str]) -> Seconds:
    """Run commands one after another; return their seconds. Raises CalledProcessError where one fails."""
    start, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    for command in commands:
        subprocess.run(command, shell=True, check=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Seconds(round(time.perf_counter() - start, 2), round(processor, 2))


def table(times: tuple[Timed, ...]) -> str:
    """Return the times as a table, with their sum."""
    lines = ["| step | commands | seconds | processor seconds | again: seconds | again: processor seconds |",
             "|---|---:|---:|---:|---:|---:|"]
    for row in times:
        again = ("-", "-") if row.again is None else (f"{row.again.clock:.1f}", f"{row.again.processor:.1f}")
        lines.append(f"| {row.name} | {row.commands} | {row.first.clock:.1f} | {row.first.processor:.1f} | "
                     f"{again[0]} | {again[1]} |")
    lines.append(f"| **all, the first time** | {sum(row.commands for row in times)} | "
                 f"{sum(row.first.clock for row in times):.1f} | {sum(row.first.processor for row in times):.1f} | | |")
    return "\n".join(lines)


def document(record: Record) -> str:
    """Return docs/first-steps.md."""
    words = "\n".join(f"{name:<10} {record.about[name]}" for name in _ABOUT)
    busy = "" if record.load <= _BUSY * record.cores else f"""
**The machine was busy**: {record.load:.2f} processes were running or waiting for its {record.cores} cores
before the run began. So a new user waits less than the seconds say. Processor seconds change little.
"""
    return f"""# First steps, timed

What does a new user wait for? A clone of this repository went into an empty folder, with an empty home and an
empty cache. Set-up includes the download of all that shardmath needs. Every command of the tutorial is a process
of its own; the notebook is executed whole, with the start of its kernel.

{table(record.times)}

*Seconds* are those of the clock. *Processor seconds* are those of all cores together. *Again* is the same step
once more: the cache has then what the first time compiled. `-` means that nobody does the step twice.
{busy}
```text
{words}
```

Written by `python -m benchmarks.stranger --document docs/first-steps.md` on {record.day}; the times are in
[first_steps.json](../benchmarks/first_steps.json).
"""


def to_json(record: Record) -> str:
    """Return the record as JSON."""
    return f"{json.dumps(asdict(record), indent=2)}\n"


def from_json(text: str) -> Record:
    """Return the record that ``to_json`` wrote."""
    fields: dict[str, Any] = json.loads(text)
    times = tuple(Timed(row["name"], row["commands"], Seconds(**row["first"]),
                        None if row["again"] is None else Seconds(**row["again"])) for row in fields.pop("times"))
    return Record(**fields, times=times)


def main(arguments: list[str]) -> int:
    """Walk the way; print the table, or write the page and its record. Return the exit code 0."""
    parser = argparse.ArgumentParser(description="Time the way of a new user, from an empty clone.")
    parser.add_argument("--document", type=Path, help="write this Markdown file and its record instead of a table")
    asked = parser.parse_args(arguments)
    load, about, times = os.getloadavg()[0], machine(), []
    with TemporaryDirectory() as folder:
        for row in timed(Path(folder)):
            times.append(row)
            sys.stderr.write(f"{row.name}: {row.first.clock:.1f} s, {row.first.processor:.1f} of processors\n")
    about = {name: about[name] for name in _ABOUT}
    record = Record(date.today().isoformat(), os.cpu_count() or 1, load, about, tuple(times))
    if asked.document is None:
        sys.stdout.write(f"{table(record.times)}\n")
    else:
        RECORD.write_text(to_json(record), encoding="utf-8")
        asked.document.write_text(document(record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
