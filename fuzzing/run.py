"""Fuzz every reader in turn and say what was found: `python -m fuzzing.run --inputs 1000000`.

Inputs that reach new code stay in `.cache/fuzzing`, from where the next run goes on; what broke a reader stays too.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from fuzzing import findings
from fuzzing.one import LONGEST, write_seeds
from fuzzing.reader import ROOT, Reader
from fuzzing.readers import READERS

#: Inputs of a reader at least, if there are so many for each.
_LEAST = 50_000
#: Seconds after which an input hangs, and MiB of the process: backstops behind those of ``outcome``.
_HANGS, _MOST_MEMORY = 60, 3072
#: Inputs of a reader that are guided by what others have reached; all after them are made from those by chance.
_GUIDED = 5_000
#: How often a process is begun again after one input has ended it.
_BEGINNINGS = 20


@dataclass
class Tried:
    """A campaign of one reader: inputs and seconds, failures, and branches reached before and after."""

    reader: str
    inputs: int = 0
    seconds: float = 0.0
    findings: int = 0
    before: int = 0
    after: int = 0


def main(arguments: list[str] | None = None) -> int:
    """Run all, or those that are named; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzzing.run", description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs of all readers together")
    parser.add_argument("--reader", action="append", choices=READERS, help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="of all random choices")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="readers side by side (all cores)")
    asked = parser.parse_args(arguments)
    chosen = [READERS[name] for name in asked.reader or READERS]
    started = time.monotonic()
    with ThreadPoolExecutor(max(1, asked.jobs)) as jobs:
        rows = []
        for row in jobs.map(fuzzed, chosen, shared_out(chosen, asked.inputs), repeat(asked.seed)):
            rows.append(row)
            print(line(row), flush=True)
    print(f"\n{table(rows)}\n\n{time.monotonic() - started:,.0f} s in all, {max(1, asked.jobs)} readers side by side")
    return 1 if any(row.findings for row in rows) else 0


def shared_out(readers: list[Reader], inputs: int) -> list[int]:
    """Inputs of each reader: as many for each as there are at least, the rest by their shares."""
    least = min(_LEAST, inputs // len(readers))
    rest, shares = inputs - least * len(readers), sum(reader.share for reader in readers)
    seconds = [least + rest * reader.share // shares for reader in readers]
    seconds[0] += inputs - sum(seconds)
    return seconds


def fuzzed(reader: Reader, inputs: int, seed: int) -> Tried:
    """Give a reader so many inputs, in processes of their own. Raises SystemExit where none begins."""
    row = Tried(reader.name)
    folder = findings.folder_of(reader.name)
    environment = {**os.environ, "XDG_CACHE_HOME": str(findings.CACHE / "cache"), "PYTHONHASHSEED": "0",
                   "MPLCONFIGDIR": str(findings.CACHE / "cache"), "COLUMNS": "100"}
    write_seeds(reader, folder / "corpus")
    (folder / "findings").mkdir(exist_ok=True)
    for path in findings.found(reader.name):
        if _mended(reader, path, environment):
            path.rename(folder / "corpus" / f"mended-{path.name}")
            path.with_suffix(".txt").unlink(missing_ok=True)
    start = time.monotonic()
    guided, beginning = min(inputs, _GUIDED), 0
    while row.inputs < inputs and beginning < _BEGINNINGS:
        beginning += 1
        left, chance = (guided if row.inputs < guided else inputs) - row.inputs, seed * 1000 + beginning
        command = [sys.executable, "-m", "fuzzing.one", reader.name]
        if row.inputs < guided:
            command += [
                str(folder / "corpus"), f"-runs={left}", f"-timeout={_HANGS}", f"-rss_limit_mb={_MOST_MEMORY}",
                f"-max_len={LONGEST}", f"-seed={chance}", f"-artifact_prefix={folder / 'findings'}/",
                "-print_final_stats=1", "-len_control=0", "-report_slow_units=999",
            ]
        else:
            command += ["--plain", str(left), str(chance), str(folder / "corpus")]
        with (folder / "log.txt").open("wb") as log:
            code = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log, check=False).returncode
        output = (folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        executed = _executed(output)
        row.inputs += executed
        covered = [int(count) for count in re.findall(r"cov: (\d+)", output)]
        if covered:
            row.before, row.after = row.before or covered[0], max(row.after, covered[-1])
        if code:
            (folder / f"ended-{beginning}.txt").write_text(output[-20_000:], encoding="utf-8")
            if (folder / "last").exists():
                (folder / "last").rename(folder / "findings" / f"ended-{chance}")
            if not executed:
                raise SystemExit(f"{reader.name} does not begin:\n{output[-3000:]}")
    (folder / "last").unlink(missing_ok=True)
    row.seconds = time.monotonic() - start
    row.findings = len(findings.found(reader.name))
    return row


def _mended(reader: Reader, path: Path, environment: dict[str, str]) -> bool:
    """Tell if an input that once broke a reader does so no more."""
    command = [sys.executable, "-m", "fuzzing.one", reader.name, str(path)]
    try:
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False,
                              timeout=2 * _HANGS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _executed(output: str) -> int:
    counts = re.findall(r"number_of_executed_units:\s*(\d+)", output) or re.findall(r"^#(\d+)\s", output, re.MULTILINE)
    return int(counts[-1]) if counts else 0


def line(row: Tried) -> str:
    """Return one row of the table."""
    return (f"{row.reader:<16} {row.inputs:>10,} {row.seconds:>9,.0f} {row.findings:>9} {row.before:>9,}"
            f" {row.after:>9,} {row.after - row.before:>+8,}")


def table(rows: list[Tried]) -> str:
    """Return all rows with their sums."""
    head = f"{'reader':<16} {'inputs':>10} {'seconds':>9} {'findings':>9} {'branches':>9} {'after':>9} {'new':>8}"
    total = Tried("all", *(sum(values) for values in zip(
        *((row.inputs, row.seconds, row.findings, row.before, row.after) for row in rows), strict=True)))
    return "\n".join([head, *map(line, rows), line(total)])


if __name__ == "__main__":
    sys.exit(main())
